/* Compares the rates of schedules with DeepSpeed's and transformers'
 * (tests/oracle/schedules.py). */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/file.h"
#include "tests/harness/test.h"
#include "tools/tide/schedule.h"

static void take_word(struct schedule *schedule, const char *name, double value)
{
    struct {
        const char *name;
        double *real;
        int64_t *integer;
        bool *truth;
    } const words[] = {
        {"lr", &schedule->lr, NULL, NULL},
        {"total", NULL, &schedule->total, NULL},
        {"warmup", NULL, &schedule->warmup, NULL},
        {"decay", NULL, &schedule->decay, NULL},
        {"min_lr", &schedule->min_lr, NULL, NULL},
        {"max_lr", &schedule->max_lr, NULL, NULL},
        {"warmup_min_ratio", &schedule->warmup_min_ratio, NULL, NULL},
        {"cos_min_ratio", &schedule->cos_min_ratio, NULL, NULL},
        {"log_warmup", NULL, NULL, &schedule->log_warmup},
        {"range_steps", NULL, &schedule->range_steps, NULL},
        {"range_rate", &schedule->range_rate, NULL, NULL},
        {"range_staircase", NULL, NULL, &schedule->range_staircase},
        {"first_steps", NULL, &schedule->first_steps, NULL},
        {"second_steps", NULL, &schedule->second_steps, NULL},
        {"first_stairs", NULL, &schedule->first_stairs, NULL},
        {"second_stairs", NULL, &schedule->second_stairs, NULL},
        {"decay_steps", NULL, &schedule->decay_steps, NULL},
        {"decay_rate", &schedule->decay_rate, NULL, NULL},
        {"moves_beta", NULL, NULL, &schedule->moves_beta},
        {"min_beta", &schedule->min_beta, NULL, NULL},
        {"max_beta", &schedule->max_beta, NULL, NULL},
        {"beta_decay_rate", &schedule->beta_decay_rate, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(words[i].name, name) == 0) {
            if (words[i].real != NULL) {
                *words[i].real = value;
            } else if (words[i].integer != NULL) {
                *words[i].integer = (int64_t)value;
            } else {
                *words[i].truth = value != 0;
            }
            return;
        }
    }
    test_fail(__FILE__, __LINE__, "the fixture says %s", name);
}

/* Checks a line "kind name=value ... = rate rate ..."; first betas, if they change, replace the
 * rates. Returns the number of comparisons. */
static size_t check_line(char *line)
{
    struct schedule schedule = {0};
    char *word = strsep(&line, " ");
    int kind = 0;
    while (kind < SCHEDULE_KINDS && strcmp(schedule_name((enum schedule_kind)kind), word) != 0) {
        kind++;
    }
    check_int(kind, <, SCHEDULE_KINDS);
    schedule.kind = (enum schedule_kind)kind;
    while ((word = strsep(&line, " ")) != NULL && strcmp(word, "=") != 0) {
        char *value = word;
        char *name = strsep(&value, "=");
        take_word(&schedule, name, strtod(value, NULL));
    }
    size_t count = 0;
    for (; (word = strsep(&line, " ")) != NULL; count++) {
        double right = strtod(word, NULL);
        double ours = schedule.moves_beta ? schedule_beta1(&schedule, (int64_t)count)
                                          : schedule_lr(&schedule, (int64_t)count);
        /* log and cos of another C library may differ in the last bit. */
        if (!(fabs(ours - right) <= 1e-15 * fabs(right) + 1e-19)) {
            test_fail(__FILE__, __LINE__, "%s, update %zu: %.17g, not %.17g",
                      schedule_name(schedule.kind), count, ours, right);
        }
    }
    return count;
}

/* The rates are those of the fixture. */
static void oracle(void)
{
    char path[512];
    char *text = NULL;
    size_t bytes = 0;
    size_t rates = 0;
    snprintf(path, sizeof path, "%s/finetune/schedules.txt", test_root());
    check_int(core_file_read(path, 1 << 20, &text, &bytes), ==, 0);
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        rates += line[0] != '\0' ? check_line(line) : 0;
    }
    free(text);
    check_uint(rates, >, 1650);
    check_double(schedule_beta2, ==, 0.99);
}

/* The first update has rate zero with warmup, and the full rate without. */
static void first_update(void)
{
    struct schedule schedule = {.kind = SCHEDULE_CONSTANT, .lr = 3e-4, .total = 10};
    check_double(schedule_lr(&schedule, 0), ==, 3e-4);
    check_double(schedule_lr(&schedule, 1000000), ==, 3e-4);
    schedule.warmup = 4;
    check_double(schedule_lr(&schedule, 0), ==, 0);
    check_double(schedule_lr(&schedule, 2), ==, 1.5e-4);
}

TEST_MAIN({"oracle", oracle}, {"first_update", first_update})
