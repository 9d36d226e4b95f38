/* measure_coll.c: times collectives of this process's ranks, or of one rank with other
 * processes. */
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/coll/coll.h"
#include "offload/run/measure.h"

enum { COLL_BYTES_MAX = 64 << 20, COLL_TURNS = 3 };

struct coll_bench {
    const struct run_coll_ranks *with; /* borrowed */
    uint64_t elements;                 /* bf16 elements of a rank's array */
    struct coll_meeting *meeting;      /* owned; NULL: several processes */
    struct coll **ranks;               /* owned, [count] */
    uint16_t *arrays;                  /* owned, [count * elements] */
    struct core_fence *fences;         /* owned, [count] */
};

static void bench_fini(struct coll_bench *bench)
{
    for (uint32_t i = 0; bench->ranks != NULL && i < bench->with->count; i++) {
        coll_close(bench->ranks[i]);
    }
    coll_meeting_destroy(bench->meeting);
    free(bench->ranks);
    free(bench->arrays);
    free(bench->fences);
}

static int bench_init(struct coll_bench *bench)
{
    const struct run_coll_ranks *with = bench->with;
    bench->ranks = calloc(with->count, sizeof(*bench->ranks));
    if (bench->ranks == NULL) {
        return core_err_set(-ENOMEM, "no memory to measure collectives");
    }
    int rc = with->peers == NULL ? coll_meeting_create(with->world, &bench->meeting) : 0;
    for (uint32_t i = 0; rc == 0 && i < with->count; i++) {
        const struct coll_options options = {.kind = with->peers != NULL ? "processes" : "local",
                                             .rank = with->first + i,
                                             .world = with->world,
                                             .meeting = bench->meeting,
                                             .peers = with->peers};
        rc = coll_open(&options, &bench->ranks[i]);
    }
    if (rc != 0) {
        return rc;
    }
    /* After the ranks are open: on failure, closing them tells other processes. */
    bench->arrays = calloc(with->count, bench->elements * sizeof *bench->arrays);
    bench->fences = calloc(with->count, sizeof *bench->fences);
    return bench->arrays != NULL && bench->fences != NULL
               ? 0
               : core_err_set(-ENOMEM, "no memory to measure collectives");
}

/* `within`: ranks of a group; 0: one group. */
static int bench_turn(struct coll_bench *bench, enum coll_op op, uint32_t within)
{
    const struct run_coll_ranks *with = bench->with;
    const uint32_t sharers = within > 0 ? within : with->world;
    int rc = 0;
    for (uint32_t i = 0; i < with->count; i++) {
        uint16_t *whole = bench->arrays + i * bench->elements;
        uint16_t *own = whole + coll_border(bench->elements, sharers, (with->first + i) % sharers);
        const bool gather = op == COLL_GATHER;
        const struct coll_command command = {.op = op,
                                             .type = COLL_BF16,
                                             .within = within,
                                             .from = gather ? own : whole,
                                             .to = gather ? whole : own,
                                             .count = bench->elements};
        rc = coll_submit(bench->ranks[i], &command, &bench->fences[i]);
        if (rc != 0) {
            coll_abort(bench->ranks[0], rc); /* otherwise the others would wait */
            return rc;
        }
    }
    for (uint32_t i = 0; rc == 0 && i < with->count; i++) {
        rc = core_fence_wait(bench->fences[i], -1);
    }
    return rc;
}

/* Times a reduction and a gather of all ranks, or a gather within groups, without the wait for the
 * last rank. */
static int bench_time(struct coll_bench *bench, uint32_t within, double *seconds)
{
    int rc = bench_turn(bench, COLL_BARRIER, 0);
    const int64_t start_ns = core_clock_now_ns();
    if (rc == 0 && within == 0) {
        rc = bench_turn(bench, COLL_REDUCE_SCATTER, 0);
    }
    if (rc == 0) {
        rc = bench_turn(bench, COLL_GATHER, within);
    }
    *seconds = (double)(core_clock_now_ns() - start_ns) * 1e-9;
    return rc;
}

int run_measure_coll(const struct run_coll_ranks *with, uint64_t bytes, struct plan_rates *out)
{
    const uint64_t most = COLL_BYTES_MAX / with->world;
    struct coll_bench bench = {.with = with,
                               .elements = (bytes < most ? bytes : most) / sizeof(uint16_t)};
    const double whole = (double)(bench.elements * sizeof(uint16_t));
    double seconds = 0;
    double coll_bytes = 0;
    double within_bytes = 0;
    int rc = bench_init(&bench);
    /* the first turn touches the memory */
    for (int turn = 0; rc == 0 && turn < COLL_TURNS; turn++) {
        rc = bench_time(&bench, 0, &seconds);
        coll_bytes = fmax(coll_bytes, 2 * whole * (with->world - 1) / with->world / seconds);
        if (rc == 0 && with->within > 0) {
            rc = bench_time(&bench, with->within, &seconds);
            within_bytes = fmax(within_bytes, whole * (with->within - 1) / with->within / seconds);
        }
    }
    if (rc == 0) {
        out->coll_bytes = coll_bytes;
        out->within_bytes = with->within > 0 ? within_bytes : out->within_bytes;
    }
    bench_fini(&bench);
    return rc;
}
