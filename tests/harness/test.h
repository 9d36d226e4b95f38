/* test.h: a test program is a table of named cases. It prints TAP; its exit status is 1 if a case
 * failed, else 0.
 *
 *     // What the case proves, in its comment.
 *     static void adds(void) { check_int(1 + 1, ==, 2); }
 *     TEST_MAIN({"adds", adds})
 *
 * A failed check prints file, line and values and ends its case. In a child process, a failed check
 * ends the child with the status TEST_CHILD_FAILED; the parent must then fail the case, as
 * test_child() of child.h does. `program NAME...` runs only the cases whose names contain one of
 * the words. */
#ifndef TESTS_HARNESS_TEST_H
#define TESTS_HARNESS_TEST_H

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct test_case {
    const char *name;
    void (*run)(void);
};

/* The exit status of a child in which a check failed or which called test_skip(). */
enum { TEST_CHILD_FAILED = 99 };

int test_main(int argc, char **argv, const struct test_case *cases, size_t count);

/* End the running case as failed or skipped. Call them on the thread of the case. */
_Noreturn void test_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
_Noreturn void test_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints a line as a TAP comment. */
void test_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* TEST_SLOW is 1 in a build with AddressSanitizer, ThreadSanitizer or MemorySanitizer, else 0.
 * Loops over random cases give two counts,
 *     for (int i = 0; i < TEST_COUNT(100000, 2000); i++)
 * and a case that proves nothing more under a sanitizer begins with `if (TEST_SLOW)
 * test_skip("...")`. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_SLOW 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define TEST_SLOW 1
#else
#define TEST_SLOW 0
#endif
#else
#define TEST_SLOW 0
#endif
#define TEST_COUNT(plain, slow) (TEST_SLOW ? (slow) : (plain))

/* TEST_RACES is 1 under ThreadSanitizer of gcc. Loops over similar combinations then take steps of
 * TEST_STRIDE(n), and cases without threads may be skipped. */
#if defined(__SANITIZE_THREAD__)
#define TEST_RACES 1
#else
#define TEST_RACES 0
#endif
#define TEST_STRIDE(n) (TEST_RACES ? (n) : 1)

/* Returns whether long forms are requested, by `./check --full` or TIDE_TEST_FULL. */
bool test_full(void);

/* Puts test_directory() in memory if a tmpfs has enough space, for tests that make thousands of
 * files. Call it before test_directory(). */
void test_directory_in_memory(void);
/* Returns a directory under TMPDIR (or /tmp), made by the first call and removed when the program
 * exits. */
const char *test_directory(void);
/* Returns the path of `name` in test_directory(), valid until the program ends. The file need not
 * exist. */
const char *test_path(const char *name);
/* Writes a file in test_directory() and returns its path, valid until the program ends. */
const char *test_file(const char *name, const void *text, size_t bytes);
/* Returns the number of entries of a folder, including hidden ones. */
size_t test_entries(const char *path);
/* Returns a random number less than `below`, which is at most 2^31, and advances *state, which
 * begins as a seed. */
uint64_t test_random(uint64_t *state, uint64_t below);
/* Limits the size of files that this process writes; UINT64_MAX: no limit. From the first call on,
 * writes beyond a limit fail with EFBIG and do not end the process. */
void test_limit_files(uint64_t bytes);
/* Returns the folder `tests` of the checkout: TIDE_TEST_ROOT, or "tests". */
const char *test_root(void);

#define TEST_MAIN(...)                                                                             \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        static const struct test_case cases[] = {__VA_ARGS__};                                     \
        return test_main(argc, argv, cases, sizeof cases / sizeof cases[0]);                       \
    }

#define check_true(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            test_fail(__FILE__, __LINE__, "%s does not hold", #condition);                         \
        }                                                                                          \
    } while (0)

#define check_int(left, relation, right)                                                           \
    do {                                                                                           \
        int64_t left_ = (int64_t)(left);                                                           \
        int64_t right_ = (int64_t)(right);                                                         \
        if (!(left_ relation right_)) {                                                            \
            test_fail(__FILE__, __LINE__, "%s %s %s does not hold: %" PRId64 " and %" PRId64,      \
                      #left, #relation, #right, left_, right_);                                    \
        }                                                                                          \
    } while (0)

#define check_uint(left, relation, right)                                                          \
    do {                                                                                           \
        uint64_t left_ = (uint64_t)(left);                                                         \
        uint64_t right_ = (uint64_t)(right);                                                       \
        if (!(left_ relation right_)) {                                                            \
            test_fail(__FILE__, __LINE__, "%s %s %s does not hold: 0x%" PRIx64 " and 0x%" PRIx64,  \
                      #left, #relation, #right, left_, right_);                                    \
        }                                                                                          \
    } while (0)

#define check_double(left, relation, right)                                                        \
    do {                                                                                           \
        double left_ = (double)(left);                                                             \
        double right_ = (double)(right);                                                           \
        if (!(left_ relation right_)) {                                                            \
            test_fail(__FILE__, __LINE__, "%s %s %s does not hold: %.9g and %.9g", #left,          \
                      #relation, #right, left_, right_);                                           \
        }                                                                                          \
    } while (0)

#define check_string(left, right)                                                                  \
    do {                                                                                           \
        const char *left_ = (left);                                                                \
        const char *right_ = (right);                                                              \
        if (strcmp(left_, right_) != 0) {                                                          \
            test_fail(__FILE__, __LINE__, "%s is \"%s\", not \"%s\"", #left, left_, right_);       \
        }                                                                                          \
    } while (0)

/* Checks that `text` contains `part`. */
#define check_contains(text, part)                                                                 \
    do {                                                                                           \
        const char *text_ = (text);                                                                \
        const char *part_ = (part);                                                                \
        if (strstr(text_, part_) == NULL) {                                                        \
            test_fail(__FILE__, __LINE__, "%s is \"%s\", without \"%s\"", #text, text_, part_);    \
        }                                                                                          \
    } while (0)

#define check_memory(left, right, bytes) test_memory(__FILE__, __LINE__, left, right, bytes)
void test_memory(const char *file, int line, const void *left, const void *right, size_t bytes);

#endif
