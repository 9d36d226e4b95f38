/* product_plain.c: the blocked product, shared among a team in a grid of parts that does not affect
 * results. */
#include <assert.h>

#include "core/base/team.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/product.h"

struct grid {
    unsigned down;   /* parts along the rows */
    unsigned across; /* parts along the columns */
    int64_t rows;    /* of the largest part */
    int64_t columns;
};

static int64_t share_max(int64_t total, int64_t grain, unsigned parts)
{
    uint64_t begin = 0;
    uint64_t end = 0;
    core_team_share((uint64_t)total, (uint64_t)grain, 0, parts, &begin, &end);
    return (int64_t)end;
}

/* Chooses the grid with the lowest cost: the elements of the largest part, plus 32 for each of its
 * rows and columns, which are packed. */
static struct grid grid_choose(const struct kern_isa *isa, int64_t m, int64_t n, unsigned threads)
{
    struct grid best = {0};
    for (unsigned down = 1; down <= threads; down++) {
        if (threads % down != 0) {
            continue;
        }
        const struct grid grid = {
            .down = down,
            .across = threads / down,
            .rows = share_max(m, isa->product_rows, down),
            .columns = share_max(n, isa->product_columns, threads / down),
        };
        const int64_t cost = grid.rows * grid.columns + 32 * (grid.rows + grid.columns);
        const int64_t best_cost = best.rows * best.columns + 32 * (best.rows + best.columns);
        if (best.down == 0 || cost < best_cost) {
            best = grid;
        }
    }
    return best;
}

struct job {
    const struct kern_isa *isa;
    const struct kern_product *product;
    struct grid grid;
    char *scratch;
    size_t part_bytes;
};

static void run_part(void *argument, unsigned index, unsigned count)
{
    const struct job *job = argument;
    const struct kern_product *p = job->product;
    assert(count == job->grid.down * job->grid.across);
    uint64_t m[2];
    uint64_t n[2];
    core_team_share((uint64_t)p->m, (uint64_t)job->isa->product_rows, index / job->grid.across,
                    job->grid.down, &m[0], &m[1]);
    core_team_share((uint64_t)p->n, (uint64_t)job->isa->product_columns, index % job->grid.across,
                    job->grid.across, &n[0], &n[1]);
    if (m[0] < m[1] && n[0] < n[1]) {
        job->isa->product(&(struct kern_product_part){
            .product = p,
            .m_begin = (int64_t)m[0],
            .m_end = (int64_t)m[1],
            .n_begin = (int64_t)n[0],
            .n_end = (int64_t)n[1],
            .scratch = (void *)(job->scratch + index * job->part_bytes),
        });
    }
}

size_t kern_product_plain_bytes(const struct kern_isa *isa, enum kern_type type, int64_t m,
                                int64_t n, int64_t k, unsigned threads)
{
    const struct grid grid = grid_choose(isa, m, n, threads);
    return threads * isa->product_bytes(type, grid.rows, grid.columns, k);
}

void kern_product_plain(const struct kern_isa *isa, struct core_team *team,
                        const struct kern_product *product, void *scratch)
{
    const unsigned threads = core_team_count(team);
    struct job job = {.isa = isa, .product = product, .scratch = scratch};
    job.grid = grid_choose(isa, product->m, product->n, threads);
    job.part_bytes = isa->product_bytes(product->type, job.grid.rows, job.grid.columns, product->k);
    core_team_run(team, run_part, &job);
}

bool kern_finish_plain(const struct kern_finish *finish)
{
    const bool scaled = finish->scale > 0.0f || finish->scale < 0.0f;
    return finish->first && !finish->onto && !scaled && finish->bias == NULL;
}

float *kern_finish_direct(const struct kern_finish *finish, int64_t *stride)
{
    if (!kern_finish_plain(finish)) {
        return NULL;
    }
    if (finish->out == NULL) {
        *stride = finish->sum_stride;
        return finish->sum;
    }
    *stride = finish->out_stride;
    return finish->out_type == KERN_F32 ? finish->out : NULL;
}

struct kern_finish kern_finish_grad(const struct kern_grad *grad, int64_t width)
{
    return (struct kern_finish){
        .parameter = true,
        .sum = grad->sum,
        .sum_stride = width,
        .first = grad->first,
        .out = grad->last ? grad->out : NULL,
        .out_type = grad->out_type,
        .out_stride = width,
    };
}
