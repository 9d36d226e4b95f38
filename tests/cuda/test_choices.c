/* Proves how ways to compute products are chosen, timed, kept in a file and found again, on the
 * emulated card with the played library; and what happens where files and scratch are bad. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/base/err.h"
#include "kernels/cuda/product_lt.h"
#include "tests/harness/heard.h"
#include "tests/kernels/rig.h"

static void linear_over(int64_t n, int64_t k)
{
    struct kern_linear_arguments y = {
        .type = KERN_BF16, .m = 4, .n = n, .k = k, .x_stride = k, .y_stride = n};
    rig_case((uint64_t)n);
    y.x = rig_random(KERN_BF16, 4 * k, 1.0);
    y.w = rig_random(KERN_BF16, n * k, 1.0);
    y.y = rig_zeros(KERN_BF16, 4 * n);
    rig_check(KERN_LINEAR, &y, (struct rig_bound){2.0, 64.0}, y.y, NULL);
}

static void linear(int64_t n)
{
    linear_over(n, 8);
}

static size_t file_read(const char *path, char *text, size_t bytes)
{
    FILE *file = fopen(path, "re");
    check_true(file != NULL);
    const size_t length = fread(text, 1, bytes - 1, file);
    text[length] = '\0';
    fclose(file);
    return length;
}

static size_t lines_of(const char *path)
{
    char text[8192];
    size_t lines = 0;
    file_read(path, text, sizeof text);
    for (const char *c = text; *c != '\0'; c++) {
        lines += *c == '\n';
    }
    return lines;
}

static void open_with(const char *path)
{
    const struct kern_options options = {.cuda_choices = path};
    rig_open(&options, 1);
}

/* Each shape is chosen once; a second run finds it in the file and adds nothing. */
static void choices_are_kept(void)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/choices", test_directory());
    open_with(path);
    linear(8);
    linear(16);
    linear(8);
    rig_close();
    check_int(lines_of(path), ==, 2);
    open_with(path);
    linear(8);
    linear(24);
    rig_close();
    check_int(lines_of(path), ==, 3);
}

/* Two runs at once: what the other has chosen since is taken and not timed again, and while the other
 * has the lock nobody chooses. */
static void two_runs_choose_once(void)
{
    char path[1024];
    struct kern_lt_choices other;
    struct kern_lt_choice choice = {.key = {.m = 3}, .algo = {7}};
    snprintf(path, sizeof path, "%s/two", test_directory());
    struct kern_lt_choices mine;
    check_int(kern_lt_choices_init(&mine, path, "Card"), ==, 0);
    check_int(kern_lt_choices_init(&other, path, "Card"), ==, 0);
    const int lock = kern_lt_choices_begin(&other);
    check_int(lock, >=, 0);
    const int second = open(path, O_RDWR | O_CLOEXEC);
    check_int(flock(second, LOCK_EX | LOCK_NB), ==, -1);
    check_int(errno, ==, EWOULDBLOCK);
    kern_lt_choices_add(&other, &choice);
    kern_lt_choices_end(lock);
    check_int(flock(second, LOCK_EX | LOCK_NB), ==, 0);
    close(second);
    check_true(kern_lt_choices_find(&mine, &choice.key) == NULL);
    const int again = kern_lt_choices_begin(&mine);
    check_int(again, >=, 0);
    check_uint(kern_lt_choices_find(&mine, &choice.key)->algo[0], ==, 7);
    kern_lt_choices_end(again);
    kern_lt_choices_fini(&mine);
    check_int(kern_lt_choices_init(&mine, path, "Card, another driver"), ==, 0);
    check_true(kern_lt_choices_find(&mine, &choice.key) == NULL);
    kern_lt_choices_fini(&mine);
    kern_lt_choices_fini(&other);
    check_int(lines_of(path), ==, 1);
    check_int(kern_lt_choices_init(&mine, NULL, "Card"), ==, 0);
    check_int(kern_lt_choices_begin(&mine), ==, -1);
    kern_lt_choices_end(-1);
    kern_lt_choices_fini(&mine);
}

/* A way that the library of this run does not know is chosen again. */
static void old_ways_are_replaced(void)
{
    char path[1024];
    char text[4096];
    snprintf(path, sizeof path, "%s/old", test_directory());
    open_with(path);
    linear(8);
    rig_close();
    const size_t length = file_read(path, text, sizeof text);
    check_int(length, >, 20);
    char *way = strrchr(text, '|') + 1; /* the first word is the number of the way */
    way[0] = 'f';
    FILE *file = fopen(path, "we");
    check_int(fwrite(text, 1, length, file), ==, length);
    fclose(file);
    open_with(path);
    linear(8);
    rig_close();
    check_int(lines_of(path), ==, 2);
}

/* A product that goes without the library is right, and one warning says so. */
static void shapes_without_a_way_are_told(void)
{
    test_listen(CORE_LOG_WARN);
    open_with(NULL);
    linear_over(8, 7);
    linear_over(8, 7);
    linear_over(16, 5);
    rig_close();
    check_int(test_heard_lines(""), ==, 1);
    check_contains(test_heard(), "no way to compute a product of 4 x 8 over 7 bf16 numbers");
    test_listen_end();
}

/* Lines that are not understood are left out with one warning; lines of other machines are not ours. */
static void bad_lines_are_left_out(void)
{
    struct kern_lt_choices choices;
    static const char text[] = "tide-lt 1|other card 130000|00|00\n"
                               "tide-lt 1|Card 1|zz|00\n"
                               "not ours at all\n";
    test_listen(CORE_LOG_WARN);
    const char *path = test_file("bad", text, sizeof text - 1);
    check_int(kern_lt_choices_init(&choices, path, "Card 1"), ==, 0);
    check_int(choices.count, ==, 0);
    check_int(test_heard_lines(""), ==, 1);
    check_contains(test_heard(), "line 2 is not understood");
    kern_lt_choices_fini(&choices);
    test_listen_end();
}

/* A file that cannot be written is one warning, and the choice is kept in memory. */
static void a_file_that_cannot_be_written(void)
{
    struct kern_lt_choices choices;
    struct kern_lt_choice choice = {.key = {.m = 3}, .algo = {7}};
    test_listen(CORE_LOG_WARN);
    check_int(kern_lt_choices_init(&choices, "/nowhere/at/all", "Card"), ==, 0);
    kern_lt_choices_add(&choices, &choice);
    kern_lt_choices_add(&choices, &choice);
    check_int(test_heard_lines(""), ==, 1);
    check_int(choices.count, ==, 1);
    check_uint(kern_lt_choices_find(&choices, &choice.key)->algo[0], ==, 7);
    choice.key.m = 4;
    check_true(kern_lt_choices_find(&choices, &choice.key) == NULL);
    kern_lt_choices_fini(&choices);
    test_listen_end();
}

/* The list is full: the oldest gives way. */
static void the_oldest_gives_way(void)
{
    struct kern_lt_choices choices;
    check_int(kern_lt_choices_init(&choices, NULL, "Card"), ==, 0);
    for (int64_t m = 0; m <= KERN_LT_CHOICES_MAX; m++) {
        const struct kern_lt_choice choice = {.key = {.m = m}, .algo = {(uint64_t)m}};
        kern_lt_choices_add(&choices, &choice);
    }
    const struct kern_lt_key first = {.m = 0};
    const struct kern_lt_key last = {.m = KERN_LT_CHOICES_MAX};
    check_true(kern_lt_choices_find(&choices, &first) == NULL);
    check_uint(kern_lt_choices_find(&choices, &last)->algo[0], ==, KERN_LT_CHOICES_MAX);
    kern_lt_choices_fini(&choices);
}

RIG_MAIN({"choices_are_kept", choices_are_kept}, {"two_runs_choose_once", two_runs_choose_once},
         {"old_ways_are_replaced", old_ways_are_replaced},
         {"shapes_without_a_way_are_told", shapes_without_a_way_are_told},
         {"bad_lines_are_left_out", bad_lines_are_left_out},
         {"a_file_that_cannot_be_written", a_file_that_cannot_be_written},
         {"the_oldest_gives_way", the_oldest_gives_way})
