/* embed.c: looks up rows of a table by id, and computes their gradient, with tokens sorted by
 * id. */
#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/team.h"
#include "kernels/cpu/cpu.h"

enum { TOKEN_GRAIN = 4, ROW_GRAIN = 64, DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };

struct embed_job {
    const struct kern_isa *isa;
    const struct kern_embed_arguments *a;
};

static int ids_check(const int32_t *ids, int64_t tokens, int64_t vocab)
{
    for (int64_t t = 0; t < tokens; t++) {
        if (ids[t] < 0 || ids[t] >= vocab) {
            return core_err_set(-EINVAL, "token %lld has id %d, but the table has rows 0 to %lld",
                                (long long)t, ids[t], (long long)vocab - 1);
        }
    }
    return 0;
}

static void embed_range(const void *argument, int64_t begin, int64_t end)
{
    const struct embed_job *job = argument;
    job->isa->embed(job->a, begin, end);
}

size_t kern_cpu_embed_bytes(const struct kern_embed_arguments *a, unsigned threads)
{
    (void)a;
    (void)threads;
    return 0;
}

int kern_cpu_embed(const struct dev_launch *where, const struct kern_embed_arguments *a)
{
    int rc = ids_check(a->ids, a->tokens, a->vocab);
    if (rc == 0 && a->position_table != NULL && a->positions != NULL) {
        rc = ids_check(a->positions, a->tokens, a->position_count);
    }
    if (rc == 0 && a->position_table != NULL && a->positions == NULL &&
        a->length > a->position_count && a->tokens > a->position_count) {
        rc = core_err_set(-EINVAL, "rows have %lld tokens, but the table has only %lld positions",
                          (long long)a->length, (long long)a->position_count);
    }
    if (rc == 0) {
        const struct embed_job job = {kern_cpu_isa(where), a};
        kern_cpu_spread(where, a->tokens, TOKEN_GRAIN, embed_range, &job);
    }
    return rc;
}

struct grad_job {
    const struct kern_isa *isa;
    const struct kern_embed_grad_arguments *a;
    struct kern_finish finish;
    int32_t *order; /* tokens by id, then by position */
    int32_t *other; /* the sort's second buffer */
    float *rows;    /* [threads][width] */
};

static int32_t id_of(const struct kern_embed_grad_arguments *a, int64_t t)
{
    return a->ids != NULL ? a->ids[t] : (int32_t)(t % a->length);
}

static void sort_digit(struct grad_job *job, int shift)
{
    int64_t starts[DIGITS + 1] = {0};
    const int64_t tokens = job->a->tokens;
    for (int64_t t = 0; t < tokens; t++) {
        starts[(id_of(job->a, t) >> shift & (DIGITS - 1)) + 1]++;
    }
    for (int digit = 0; digit < DIGITS; digit++) {
        starts[digit + 1] += starts[digit];
    }
    for (int64_t i = 0; i < tokens; i++) {
        const int32_t token = job->order[i];
        job->other[starts[id_of(job->a, token) >> shift & (DIGITS - 1)]++] = token;
    }
    int32_t *sorted = job->other;
    job->other = job->order;
    job->order = sorted;
}

static void sort(struct grad_job *job)
{
    for (int64_t t = 0; t < job->a->tokens; t++) {
        job->order[t] = (int32_t)t;
    }
    for (int shift = 0; shift < 31 && job->a->vocab > (int64_t)1 << shift; shift += DIGIT_BITS) {
        sort_digit(job, shift);
    }
}

/* Returns the first position with an id of `id` or more. */
static int64_t place_of(const struct grad_job *job, int64_t id)
{
    int64_t low = 0;
    int64_t high = job->a->tokens;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (id_of(job->a, job->order[middle]) < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void table_rows(const struct grad_job *job, const int64_t range[2], float *row)
{
    const int64_t width = job->a->width;
    const struct kern_rows rows = {job->a->type, job->a->dy, width, width, job->order};
    const bool touches_all = job->finish.first || job->finish.out != NULL;
    int64_t place = place_of(job, range[0]);
    for (int64_t id = range[0]; id < range[1]; id++) {
        int64_t next = place;
        while (next < job->a->tokens && id_of(job->a, job->order[next]) == id) {
            next++;
        }
        const bool padding = job->a->has_padding && id == job->a->padding_id;
        const int64_t end = padding ? place : next;
        if (end > place || touches_all) {
            const int64_t at[2] = {id, 0};
            const int64_t size[2] = {1, width};
            job->isa->rows_sum(&rows, place, end, row);
            job->isa->finish(&job->finish, row, width, at, size);
        }
        place = next;
    }
}

static void grad_part(void *argument, unsigned index, unsigned count)
{
    const struct grad_job *job = argument;
    uint64_t range[2];
    core_team_share((uint64_t)job->a->vocab, ROW_GRAIN, index, count, &range[0], &range[1]);
    if (range[0] < range[1]) {
        const int64_t ids[2] = {(int64_t)range[0], (int64_t)range[1]};
        table_rows(job, ids, job->rows + (int64_t)index * job->a->width);
    }
}

size_t kern_cpu_embed_grad_bytes(const struct kern_embed_grad_arguments *a, unsigned threads)
{
    return 2 * kern_cpu_round((size_t)a->tokens * sizeof(int32_t)) +
           kern_cpu_round(threads * (size_t)a->width * sizeof(float));
}

int kern_cpu_embed_grad(const struct dev_launch *where, const struct kern_embed_grad_arguments *a)
{
    const unsigned threads = core_team_count(where->team);
    int rc = kern_cpu_need(where, KERN_EMBED_GRAD, kern_cpu_embed_grad_bytes(a, threads));
    if (rc == 0 && a->ids != NULL) {
        rc = ids_check(a->ids, a->tokens, a->vocab);
    }
    if (rc != 0 || !kern_grad_wanted(&a->dtable)) {
        return rc;
    }
    char *scratch = where->scratch;
    struct grad_job job = {
        kern_cpu_isa(where), a, kern_finish_grad(&a->dtable, a->width), NULL, NULL, NULL};
    job.order = kern_cpu_take(&scratch, (size_t)a->tokens * sizeof(int32_t));
    job.other = kern_cpu_take(&scratch, (size_t)a->tokens * sizeof(int32_t));
    job.rows = kern_cpu_take(&scratch, threads * (size_t)a->width * sizeof(float));
    sort(&job);
    core_team_run(where->team, grad_part, &job);
    return 0;
}
