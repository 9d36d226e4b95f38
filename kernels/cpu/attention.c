/* attention.c: shares documents and tiles of queries among the team. The bits do not depend on
 * which member takes an item. */
#include <stdatomic.h>

#include "core/base/team.h"
#include "kernels/cpu/cpu.h"

/* A tile of a document; for the gradient a whole document. */
struct piece {
    int32_t row;
    int32_t start, stop;
    int32_t begin, end;
};

struct job {
    const struct kern_isa *isa;
    const struct kern_attention_arguments *a;
    const struct kern_attention_grad_arguments *grad; /* NULL: forward */
    struct piece *pieces;
    int64_t piece_count;
    char *scratch;
    size_t part_bytes;
    _Atomic int64_t next; /* relaxed: core_team_run orders the rest */
};

static int64_t document_end(const struct kern_attention_arguments *a, int64_t row, int64_t start)
{
    if (a->starts == NULL) {
        return a->length;
    }
    const int32_t *starts = a->starts + row * a->length;
    int64_t end = start + 1;
    while (end < a->length && starts[end] <= start) {
        end++;
    }
    return end;
}

static void add_pieces(struct job *job, int64_t row, int64_t start, int64_t stop)
{
    const int64_t step = job->grad != NULL ? stop - start : KERN_ATTENTION_QUERIES;
    for (int64_t begin = start; begin < stop; begin += step) {
        const int64_t end = begin + step < stop ? begin + step : stop;
        job->pieces[job->piece_count++] = (struct piece){
            (int32_t)row, (int32_t)start, (int32_t)stop, (int32_t)begin, (int32_t)end};
    }
}

static void run_items(void *argument, unsigned index, unsigned count)
{
    (void)count;
    struct job *job = argument;
    float *scratch = (void *)(job->scratch + index * job->part_bytes);
    const int64_t items = job->piece_count * job->a->kv_heads;
    for (;;) {
        const int64_t item = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed);
        if (item >= items) {
            return;
        }
        /* The last pieces of a document take longest, so the order is reversed. */
        const struct piece *piece = &job->pieces[job->piece_count - 1 - item / job->a->kv_heads];
        const struct kern_attention_item what = {
            .row = piece->row,
            .start = piece->start,
            .stop = piece->stop,
            .begin = piece->begin,
            .end = piece->end,
            .kv_head = item % job->a->kv_heads,
        };
        if (job->grad != NULL) {
            job->isa->attention_grad(job->grad, &what, scratch);
        } else {
            job->isa->attention(job->a, &what, scratch);
        }
    }
}

static void run(const struct dev_launch *where, struct job *job, size_t part_bytes)
{
    const struct kern_attention_arguments *a = job->a;
    char *scratch = where->scratch;
    job->part_bytes = kern_cpu_round(part_bytes);
    job->pieces = kern_cpu_take(&scratch, (size_t)(a->rows * a->length) * sizeof(struct piece));
    job->scratch = scratch;
    for (int64_t row = 0; row < a->rows; row++) {
        for (int64_t start = 0; start < a->length;) {
            const int64_t stop = document_end(a, row, start);
            add_pieces(job, row, start, stop);
            start = stop;
        }
    }
    core_team_run(where->team, run_items, job);
}

static size_t scratch_bytes(const struct kern_attention_arguments *a, bool grad, unsigned threads)
{
    size_t most = 0;
    for (unsigned i = 0; i < kern_isa_count(); i++) {
        const struct kern_isa *isa = kern_isa_at(i);
        const size_t bytes = grad ? isa->attention_grad_bytes(a) : isa->attention_bytes(a);
        most = bytes > most ? bytes : most;
    }
    return kern_cpu_round((size_t)(a->rows * a->length) * sizeof(struct piece)) +
           threads * kern_cpu_round(most);
}

size_t kern_cpu_attention_bytes(const struct kern_attention_arguments *a, unsigned threads)
{
    return scratch_bytes(a, false, threads);
}

int kern_cpu_attention(const struct dev_launch *where, const struct kern_attention_arguments *a)
{
    int rc = kern_cpu_need(where, KERN_ATTENTION,
                           kern_cpu_attention_bytes(a, core_team_count(where->team)));
    if (rc == 0) {
        struct job job = {.isa = kern_cpu_isa(where), .a = a};
        run(where, &job, job.isa->attention_bytes(a));
    }
    return rc;
}

size_t kern_cpu_attention_grad_bytes(const struct kern_attention_grad_arguments *a,
                                     unsigned threads)
{
    return scratch_bytes(&a->forward, true, threads);
}

int kern_cpu_attention_grad(const struct dev_launch *where,
                            const struct kern_attention_grad_arguments *a)
{
    int rc = kern_cpu_need(where, KERN_ATTENTION_GRAD,
                           kern_cpu_attention_grad_bytes(a, core_team_count(where->team)));
    if (rc == 0) {
        struct job job = {.isa = kern_cpu_isa(where), .a = &a->forward, .grad = a};
        run(where, &job, job.isa->attention_grad_bytes(&a->forward));
    }
    return rc;
}
