/* panels_charts.c: which charts there are, and what each says. */
#include <math.h>

#include "tools/report/chart.h"
#include "tools/report/panels.h"

#define NONE .limit = (double)NAN

static void write_learning(FILE *out, const struct report_run *run)
{
    const double clip = run->plan.clip > 0 ? run->plan.clip : (double)NAN;
    const struct report_chart charts[] = {
        {.id = "loss",
         .title = "Loss",
         .about =
             "Mean over the targets of a step; the band holds all steps of a point. Marks at the "
             "bottom are losses that were no number.",
         .series = {{REPORT_LOSS, "train", "compute", false}, {REPORT_EVAL, "eval", "read", true}},
         .count = 2,
         NONE},
        {.id = "norm",
         .title = "Gradient norm",
         .about =
             "Before clipping; steps above the limit were scaled down to it. Marks at the bottom "
             "are steps whose norm was not finite.",
         .series = {{REPORT_NORM, "norm", "update", false}},
         .count = 1,
         .may_log = true,
         .limit = clip,
         .limit_name = "clip limit"},
        {.id = "lr",
         .title = "Learning rate",
         .about = "As the schedule gave it to the step.",
         .series = {{REPORT_LR, "rate", "copy", false}},
         .count = 1,
         .from_zero = true,
         NONE},
        {.id = "scale",
         .title = "Loss scale",
         .about = "It is halved after an overflow, whose step is skipped, and doubled after a time "
                  "without one.",
         .series = {{REPORT_SCALE, "scale", "other", false}},
         .count = 1,
         .may_log = true,
         NONE},
    };
    const bool scaled = run->whole[REPORT_SCALE].high > run->whole[REPORT_SCALE].low ||
                        run->whole[REPORT_SCALE].high > 1;
    for (size_t i = 0; i < 3u + scaled; i++) {
        report_chart_write(out, run, &charts[i]);
    }
}

static void write_speed(FILE *out, const struct report_run *run)
{
    const struct report_chart charts[] = {
        {.id = "time",
         .title = "Time of a step, by cause",
         .about = "What the device did, and what it waited for while it had nothing to do.",
         .unit = REPORT_TIME,
         .series = {{REPORT_COMPUTE, "compute", "compute", false},
                    {REPORT_WAIT_READ, "store reads", "read", false},
                    {REPORT_WAIT_WRITE, "store writes", "write", false},
                    {REPORT_WAIT_UPDATE, "update", "update", false},
                    {REPORT_WAIT_COPY, "copies", "copy", false},
                    {REPORT_WAIT_IMBALANCE, "other ranks", "ranks", false},
                    {REPORT_WAIT_OTHER, "other", "other", false},
                    {REPORT_WAIT_DATA, "rows of data", "rows", false}},
         .count = 8,
         .stacked = true,
         .from_zero = true,
         .limit = run->plan.seconds,
         .limit_name = "planned"},
        {.id = "rate",
         .title = "Tokens a second",
         .about = "Tokens of the data, without what fills rows up.",
         .unit = REPORT_PER_SEC,
         .series = {{REPORT_RATE, "measured", "copy", false}},
         .count = 1,
         .from_zero = true,
         .limit = run->plan.rate,
         .limit_name = "planned"},
        {.id = "bytes",
         .title = "Bytes a step, by path",
         .about = "Between drives and memory, and between host and device.",
         .unit = REPORT_BYTES,
         .series = {{REPORT_READ, "store reads", "read", false},
                    {REPORT_WRITE, "store writes", "write", false},
                    {REPORT_UP, "host to device", "compute", false},
                    {REPORT_DOWN, "device to host", "update", false}},
         .count = 4,
         .from_zero = true,
         NONE},
        {.id = "memory",
         .title = "Memory of the process",
         .about =
             "What it holds after a step, huge pages included, against what was planned for all "
             "tiers in memory.",
         .unit = REPORT_GB,
         .series = {{REPORT_RSS, "measured", "update", false}},
         .count = 1,
         .from_zero = true,
         .limit = (run->plan.device_bytes + run->plan.host_bytes) / 1e9,
         .limit_name = "planned"},
    };
    for (size_t i = 0; i < sizeof charts / sizeof charts[0]; i++) {
        report_chart_write(out, run, &charts[i]);
    }
}

static void write_guesses(FILE *out, const struct report_run *run)
{
    const struct report_chart charts[] = {
        {.id = "guesses",
         .title = "Updates made ahead",
         .about = "Steps whose update ran before the norm was known: the share that the norm "
                  "confirmed, and the share that was made again.",
         .series = {{REPORT_RIGHT, "right", "copy", false},
                    {REPORT_WRONG, "wrong", "write", false}},
         .count = 2,
         .unit = REPORT_COUNT,
         .stacked = true,
         .from_zero = true,
         .sums = true,
         NONE},
        {.id = "lost",
         .title = "Time lost to wrong guesses",
         .about = "In the step that guessed wrong, and in the next one.",
         .series = {{REPORT_LOST_SECONDS, "lost", "write", false}},
         .count = 1,
         .unit = REPORT_TIME,
         .stacked = true,
         .from_zero = true,
         .sums = true,
         NONE},
    };
    const bool guessed = run->whole[REPORT_RIGHT].sum + run->whole[REPORT_WRONG].sum > 0;
    for (size_t i = 0; guessed && i < (run->whole[REPORT_LOST_SECONDS].sum > 0 ? 2u : 1u); i++) {
        report_chart_write(out, run, &charts[i]);
    }
}

void report_panels_charts(FILE *out, const struct report_run *run)
{
    write_learning(out, run);
    write_speed(out, run);
    write_guesses(out, run);
}
