/* test_scale.c: the loss scale follows DeepSpeed's rules (fixture of
 * tests/oracle/loss_scale.py). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "offload/run/scale.h"
#include "tests/harness/test.h"

enum { LINE_BYTES = 16384 };

/* Reads the next "scale*count"; returns the count, or 0 at the end of the line. For "end",
 * *scale is -1. */
static int next_run(char **at, double *scale)
{
    while (**at == ' ') {
        (*at)++;
    }
    if (**at == '\0' || **at == '\n') {
        return 0;
    }
    *scale = strncmp(*at, "end", 3) == 0 ? -1 : strtod(*at, NULL);
    *at += strcspn(*at, "*") + 1;
    return (int)strtol(*at, at, 10);
}

/* `overflows` tells which steps overflow; `scales` has the expected loss scales. */
static void follow(const struct run_scale_options *options, const char *overflows, char *scales,
                   int line)
{
    struct run_scale scale;
    double expected = 0;
    int left = 0;
    run_scale_init(&scale, options);
    check_double(scale.value, ==, options->first);
    for (int i = 0; overflows[i] != '\0'; i++) {
        left = left > 0 ? left : next_run(&scales, &expected);
        left--;
        check_int(left, >=, 0);
        const double before = scale.value;
        const int rc = run_scale_step(&scale, overflows[i] == '1');
        if (expected < 0) {
            check_int(rc, ==, -ERANGE);
            check_contains(core_err_message(), "at the smallest loss scale");
            check_double(scale.value, ==, before);
            return;
        }
        if (rc != 0 || scale.value != expected) {
            test_fail(__FILE__, __LINE__, "line %d, step %d: %d and %g, not %g", line, i + 1, rc,
                      scale.value, expected);
        }
    }
    check_int(left, ==, 0);
}

static void as_deepspeed(void)
{
    static char text[LINE_BYTES];
    static char overflows[LINE_BYTES];
    char path[600];
    int lines = 0;
    snprintf(path, sizeof path, "%s/fixtures/loss_scale.txt", test_root());
    FILE *file = fopen(path, "r");
    check_true(file != NULL);
    while (fgets(text, sizeof text, file) != NULL) {
        struct run_scale_options options = {.fixed = 0};
        int consecutive = 0;
        int used = 0;
        if (text[0] == '#') {
            continue;
        }
        check_int(sscanf(text, "%lf %lf %u %u %d %16000s %n", &options.first, &options.least,
                         &options.window, &options.hysteresis, &consecutive, overflows, &used),
                  ==, 6);
        options.consecutive_hysteresis = consecutive != 0;
        follow(&options, overflows, text + used, ++lines);
    }
    fclose(file);
    check_int(lines, >=, 60);
}

static void fixed(void)
{
    const struct run_scale_options options = {
        .fixed = 1024, .first = 65536, .least = 1, .window = 1, .hysteresis = 1};
    struct run_scale scale;
    run_scale_init(&scale, &options);
    for (int i = 0; i < 50; i++) {
        check_int(run_scale_step(&scale, i % 3 != 0), ==, 0);
        check_double(scale.value, ==, 1024);
    }
}

TEST_MAIN({"as_deepspeed", as_deepspeed}, {"fixed", fixed})
