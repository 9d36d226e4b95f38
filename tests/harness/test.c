/* test.c: runs the cases of one program; a failed check leaves its case with a jump. */
#include "tests/harness/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/magic.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

/* A tmpfs with less free space is not used. */
enum { MEMORY_ROOM_BYTES = 256 << 20 };

enum { LONG_CASE_SECONDS = 5 }; /* longer cases print their time */

enum verdict { PASSED, FAILED, SKIPPED };

static jmp_buf leave_case;
static char skip_reason[256];
static char directory[256];
static const char *in_memory; /* folder of a tmpfs; NULL: TMPDIR is used */
static pid_t directory_owner;
static pid_t runner; /* the process that runs the cases */

/* Leaves the case with a jump; in a child process, ends the child. */
static _Noreturn void leave(enum verdict verdict)
{
    if (getpid() == runner) {
        longjmp(leave_case, (int)verdict);
    }
    fflush(stdout);
    _exit(TEST_CHILD_FAILED);
}

void test_fail(const char *file, int line, const char *format, ...)
{
    printf("# %s:%d: ", file, line);
    va_list list;
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    printf("\n");
    leave(FAILED);
}

void test_skip(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(skip_reason, sizeof skip_reason, format, list);
    va_end(list);
    if (getpid() != runner) {
        printf("# skipped in a child: %s\n", skip_reason);
    }
    leave(SKIPPED);
}

void test_note(const char *format, ...)
{
    printf("# ");
    va_list list;
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    printf("\n");
    fflush(stdout);
}

void test_memory(const char *file, int line, const void *left, const void *right, size_t bytes)
{
    const unsigned char *a = left;
    const unsigned char *b = right;
    for (size_t i = 0; i < bytes; i++) {
        if (a[i] != b[i]) {
            test_fail(file, line, "byte %zu of %zu differs: 0x%02x and 0x%02x", i, bytes, a[i],
                      b[i]);
        }
    }
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info;
    (void)where;
    if (kind != FTW_DP) {
        return unlink(path);
    }
    int rc = rmdir(path);
    if (rc != 0 && errno == EBUSY && umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) == 0) {
        rc = rmdir(path); /* a case left its file system mounted (mount.h) */
    }
    return rc;
}

static void remove_directory(void)
{
    if (directory[0] != '\0' && directory_owner == getpid()) {
        nftw(directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    }
}

bool test_full(void)
{
    return getenv("TIDE_TEST_FULL") != NULL;
}

void test_directory_in_memory(void)
{
    static const char memory[] = "/dev/shm";
    struct statfs info;
    if (statfs(memory, &info) == 0 && info.f_type == TMPFS_MAGIC && access(memory, W_OK) == 0 &&
        (uint64_t)info.f_bavail * (uint64_t)info.f_bsize >= MEMORY_ROOM_BYTES) {
        in_memory = memory;
    }
}

const char *test_directory(void)
{
    if (directory[0] == '\0') {
        const char *base = in_memory != NULL ? in_memory : getenv("TMPDIR");
        const bool given = base != NULL && base[0] != '\0';
        snprintf(directory, sizeof directory, "%s/tide-test-XXXXXX", given ? base : "/tmp");
        if (mkdtemp(directory) == NULL) {
            directory[0] = '\0';
            test_fail(__FILE__, __LINE__, "no directory for the test can be made");
        }
        directory_owner = getpid();
        atexit(remove_directory);
    }
    return directory;
}

/* A path, kept in a list so that leak checkers do not report it. */
struct kept {
    struct kept *next; /* owned */
    char path[];
};

static const char *keep_path(const char *base, const char *name)
{
    static struct kept *first;
    size_t length = strlen(base) + strlen(name) + 2;
    struct kept *kept = malloc(sizeof *kept + length);
    if (kept == NULL) {
        test_fail(__FILE__, __LINE__, "no memory");
    }
    kept->next = first;
    first = kept;
    snprintf(kept->path, length, "%s/%s", base, name);
    return kept->path;
}

const char *test_path(const char *name)
{
    return keep_path(test_directory(), name);
}

const char *test_file(const char *name, const void *text, size_t bytes)
{
    const char *path = test_path(name);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(text, 1, bytes, file) != bytes || fclose(file) != 0) {
        test_fail(__FILE__, __LINE__, "%s cannot be written", path);
    }
    return path;
}

size_t test_entries(const char *path)
{
    size_t count = 0;
    DIR *folder = opendir(path);
    check_true(folder != NULL);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    closedir(folder);
    return count;
}

uint64_t test_random(uint64_t *state, uint64_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*state >> 33) % below;
}

void test_limit_files(uint64_t bytes)
{
    struct rlimit limit;
    check_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    check_int(getrlimit(RLIMIT_FSIZE, &limit), ==, 0);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    check_int(setrlimit(RLIMIT_FSIZE, &limit), ==, 0);
}

const char *test_root(void)
{
    const char *root = getenv("TIDE_TEST_ROOT");
    return root != NULL ? root : "tests";
}

static bool wanted(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strstr(name, argv[i]) != NULL) {
            return true;
        }
    }
    return argc < 2;
}

static enum verdict run_case(const struct test_case *one)
{
    switch (setjmp(leave_case)) {
    case PASSED: one->run(); return PASSED;
    case SKIPPED: return SKIPPED;
    default: return FAILED;
    }
}

/* nohup and background shells make programs ignore signals; tide would inherit that. */
static void signals_reset(void)
{
    static const int ends[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    sigset_t none;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        signal(ends[i], SIG_DFL);
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

int test_main(int argc, char **argv, const struct test_case *cases, size_t count)
{
    int failed = 0;
    signals_reset();
    runner = getpid();
    printf("1..%zu\n", count);
    for (size_t i = 0; i < count; i++) {
        const char *name = cases[i].name;
        fflush(stdout);
        if (!wanted(name, argc, argv)) {
            printf("ok %zu - %s # SKIP not asked for\n", i + 1, name);
            continue;
        }
        const time_t began = time(NULL);
        enum verdict verdict = run_case(&cases[i]);
        if (time(NULL) - began >= LONG_CASE_SECONDS) {
            printf("# %s took %ld s\n", name, (long)(time(NULL) - began));
        }
        failed |= verdict == FAILED;
        printf("%s %zu - %s%s%s\n", verdict == FAILED ? "not ok" : "ok", i + 1, name,
               verdict == SKIPPED ? " # SKIP " : "", verdict == SKIPPED ? skip_reason : "");
    }
    fflush(stdout);
    return failed;
}
