/* finetune_figures.c: the table of figures, and the functions that read it. */
#include "tools/tide/finetune_figures.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/json/write.h"

#define AT(member) offsetof(struct finetune_record, member)
#define WAIT(what, cause)                                                                          \
    {                                                                                              \
        .group = "wait", .key = what, .tag = "wait/" what,                                         \
        .offset = AT(waits) + (cause) * sizeof(double)                                             \
    }
#define GUESS(what, of, member)                                                                    \
    {                                                                                              \
        .group = "guesses", .key = what, .tag = "guesses/" what, .kind = of, .offset = AT(member)  \
    }
#define BYTES(what, member)                                                                        \
    {                                                                                              \
        .key = what "_bytes", .tag = "bytes/" what, .kind = FINETUNE_FIGURE_WHOLE,                 \
        .offset = AT(member)                                                                       \
    }
#define RANKS_BYTES(what, member)                                                                  \
    {                                                                                              \
        .group = "ranks", .key = what "_bytes", .tag = "bytes/" what,                              \
        .kind = FINETUNE_FIGURE_WHOLE, .offset = AT(member), .ranks = true                         \
    }

#define REWARD(what, member)                                                                       \
    {                                                                                              \
        .key = "reward_" what, .tag = "rewards/" what, .offset = AT(member), .pairs = true         \
    }
#define EVAL_REWARD(what, member)                                                                  \
    {                                                                                              \
        .key = "eval_reward_" what, .tag = "eval/reward_" what, .offset = AT(member),              \
        .evaluations = true, .pairs = true                                                         \
    }

static const struct finetune_figure figures[] = {
    {.key = "step", .kind = FINETUNE_FIGURE_WHOLE, .offset = AT(step.step)},
    {.key = "loss", .tag = "train/loss", .offset = AT(step.loss)},
    {.key = "grad_norm", .tag = "train/grad_norm", .offset = AT(step.grad_norm)},
    {.key = "lr", .tag = "train/lr", .offset = AT(lr)},
    {.key = "loss_scale", .tag = "train/loss_scale", .offset = AT(step.loss_scale)},
    {.key = "skipped",
     .tag = "train/skipped",
     .kind = FINETUNE_FIGURE_TRUTH,
     .offset = AT(step.skipped)},
    {.key = "tokens",
     .tag = "perf/tokens",
     .kind = FINETUNE_FIGURE_WHOLE,
     .offset = AT(step.tokens)},
    {.key = "seconds", .tag = "perf/step_seconds", .offset = AT(step.seconds)},
    {.key = "tokens_per_second", .tag = "perf/tokens_per_second", .offset = AT(tokens_per_second)},
    BYTES("store_read", step.store_read_bytes),
    BYTES("store_write", step.store_write_bytes),
    BYTES("h2d", step.up_bytes),
    BYTES("d2h", step.down_bytes),
    WAIT("store_read", TIDE_WAIT_STORE_READ),
    WAIT("store_write", TIDE_WAIT_STORE_WRITE),
    WAIT("update", TIDE_WAIT_UPDATE),
    WAIT("copy", TIDE_WAIT_COPY),
    WAIT("imbalance", TIDE_WAIT_IMBALANCE),
    WAIT("other", TIDE_WAIT_OTHER),
    {.group = "wait", .key = "data", .tag = "wait/data", .offset = AT(data_wait)},
    GUESS("right", FINETUNE_FIGURE_SHORT, step.guess_right),
    GUESS("wrong", FINETUNE_FIGURE_SHORT, step.guess_wrong),
    GUESS("bytes", FINETUNE_FIGURE_WHOLE, step.guess_bytes),
    GUESS("seconds", FINETUNE_FIGURE_REAL, step.guess_seconds),
    {.key = "rss_gb", .tag = "memory/rss_gb", .offset = AT(rss_gb)},
    {.key = "eval_loss", .tag = "eval/loss", .offset = AT(eval_loss), .evaluations = true},
    {.group = "ranks",
     .key = "slowest",
     .tag = "ranks/slowest",
     .kind = FINETUNE_FIGURE_WHOLE,
     .offset = AT(step.slowest_rank),
     .ranks = true},
    {.group = "ranks",
     .key = "imbalance",
     .tag = "ranks/imbalance",
     .offset = AT(step.imbalance_seconds),
     .ranks = true},
    RANKS_BYTES("gather", step.gather_bytes),
    RANKS_BYTES("reduce", step.reduce_bytes),
    RANKS_BYTES("gather_between", step.gather_between_bytes),
    RANKS_BYTES("reduce_between", step.reduce_between_bytes),
    REWARD("chosen", step.reward_chosen),
    REWARD("rejected", step.reward_rejected),
    REWARD("margin", reward_margin),
    REWARD("accuracy", step.reward_accuracy),
    EVAL_REWARD("margin", eval_margin),
    EVAL_REWARD("accuracy", eval_accuracy),
};
enum { FIGURES = sizeof figures / sizeof figures[0] };

const struct finetune_figure *finetune_figure_at(size_t index)
{
    return index < FIGURES ? &figures[index] : NULL;
}

void finetune_figures_derive(struct finetune_record *record)
{
    const struct tide_step *step = &record->step;
    record->tokens_per_second = step->seconds > 0 ? (double)step->tokens / step->seconds : 0;
    record->rss_gb = (double)record->memory.rss_bytes / 1e9;
    record->reward_margin = step->reward_chosen - step->reward_rejected;
}

bool finetune_figure_known(const struct finetune_figure *figure,
                           const struct finetune_record *record)
{
    return (!figure->evaluations || record->evaluated) &&
           (!figure->ranks || record->step.ranks > 1) && (!figure->pairs || record->pairs);
}

static uint64_t whole_of(const struct finetune_figure *figure, const struct finetune_record *record)
{
    const char *at = (const char *)record + figure->offset;
    uint64_t whole = 0;
    uint32_t brief = 0;
    if (figure->kind != FINETUNE_FIGURE_SHORT) {
        memcpy(&whole, at, sizeof whole);
        return figure->kind == FINETUNE_FIGURE_TRUTH ? whole != 0 : whole;
    }
    memcpy(&brief, at, sizeof brief);
    return brief;
}

double finetune_figure_value(const struct finetune_figure *figure,
                             const struct finetune_record *record)
{
    double real = 0;
    if (figure->kind != FINETUNE_FIGURE_REAL) {
        return (double)whole_of(figure, record);
    }
    memcpy(&real, (const char *)record + figure->offset, sizeof real);
    return real;
}

static bool same_group(const char *left, const char *right)
{
    return left == right || (left != NULL && right != NULL && strcmp(left, right) == 0);
}

/* Returns the open group. */
static const char *switch_group(struct core_json_write *json, const char *open, const char *next)
{
    if (!same_group(open, next)) {
        if (open != NULL) {
            core_json_write_object_end(json);
        }
        if (next != NULL) {
            core_json_write_object_begin(json, next);
        }
    }
    return next;
}

void finetune_figures_write(struct core_json_write *json, const struct finetune_record *record)
{
    const char *open = NULL;
    for (size_t i = 0; i < FIGURES; i++) {
        const struct finetune_figure *figure = &figures[i];
        if (!finetune_figure_known(figure, record)) {
            continue;
        }
        open = switch_group(json, open, figure->group);
        if (figure->kind == FINETUNE_FIGURE_REAL) {
            core_json_write_real(json, figure->key, finetune_figure_value(figure, record));
        } else if (figure->kind == FINETUNE_FIGURE_TRUTH) {
            core_json_write_bool(json, figure->key, whole_of(figure, record) != 0);
        } else {
            core_json_write_unsigned(json, figure->key, whole_of(figure, record));
        }
    }
    switch_group(json, open, NULL);
}

void finetune_figures_print(FILE *file, const struct finetune_record *record)
{
    for (size_t i = 0; i < FIGURES; i++) {
        const struct finetune_figure *figure = &figures[i];
        const double value = finetune_figure_value(figure, record);
        fputs(i > 0 ? "," : "", file);
        if (!finetune_figure_known(figure, record)) {
            continue;
        }
        if (figure->kind != FINETUNE_FIGURE_REAL) {
            fprintf(file, "%" PRIu64, whole_of(figure, record));
        } else if (isfinite(value)) {
            fprintf(file, "%.9g", value);
        }
    }
    fputc('\n', file);
}

void finetune_figures_print_names(FILE *file)
{
    for (size_t i = 0; i < FIGURES; i++) {
        const struct finetune_figure *figure = &figures[i];
        fprintf(file, "%s%s%s%s", i > 0 ? "," : "", figure->group != NULL ? figure->group : "",
                figure->group != NULL ? "_" : "", figure->key);
    }
    fputc('\n', file);
}
