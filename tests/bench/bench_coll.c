/* bench_coll.c: times of collectives between two processes; bench_world.py compares them with
 * bench_coll_mpi.c. The first process prints `name value unit` lines: allreduce_us (median of
 * all-reduces of one fp64), reduce_s (reduce-scatter of 64 MiB of bf16) and sum_s (its sums, by
 * coll_sum alone). The last two are the least of 9. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/coll/coll.h"
#include "core/coll/peers.h"
#include "core/coll/sum.h"

enum { WORDS = 32 << 20, SCALARS = 20000, ROUNDS = 9 };
static const int64_t limit_ns = 60LL * 1000000000;

static _Noreturn void stop(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, core_err_message());
    exit(2);
}

static int by_value(const void *a, const void *b)
{
    const int64_t left = *(const int64_t *)a;
    const int64_t right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

static int64_t run(struct coll *coll, const struct coll_command *command)
{
    struct core_fence fence;
    const int64_t begun = core_clock_now_ns();
    if (coll_submit(coll, command, &fence) != 0 || core_fence_wait(fence, limit_ns) != 0) {
        stop(coll_op_name(command->op));
    }
    return core_clock_now_ns() - begun;
}

static double scalar_us(struct coll *coll)
{
    static int64_t times[SCALARS];
    double value = 1;
    for (int i = 0; i < SCALARS; i++) {
        times[i] = run(
            coll,
            &(struct coll_command){
                .op = COLL_ALL_REDUCE, .type = COLL_F64, .from = &value, .to = &value, .count = 1});
        value *= 0.5; /* the sum of two equal values */
    }
    qsort(times, SCALARS, sizeof times[0], by_value);
    return (double)times[SCALARS / 2] * 1e-3;
}

/* Returns the least time of a reduce-scatter of `array`, before which a barrier aligns
 * the ranks. */
static double reduce_seconds(struct coll *coll, const void *array, void *part)
{
    int64_t least = INT64_MAX;
    for (int i = 0; i < ROUNDS; i++) {
        run(coll, &(struct coll_command){.op = COLL_BARRIER});
        const int64_t ns = run(coll, &(struct coll_command){.op = COLL_REDUCE_SCATTER,
                                                            .type = COLL_BF16,
                                                            .from = array,
                                                            .to = part,
                                                            .count = WORDS});
        least = ns < least ? ns : least;
    }
    return (double)least * 1e-9;
}

/* Returns the least time of a rank's sums in a reduce-scatter. */
static double sum_seconds(const void *array, void *part, unsigned world)
{
    const void *from[64];
    int64_t least = INT64_MAX;
    for (unsigned r = 0; r < world; r++) {
        from[r] = (const uint16_t *)array + coll_border(WORDS, world, r);
    }
    for (int i = 0; i < ROUNDS; i++) {
        const int64_t begun = core_clock_now_ns();
        coll_sum(COLL_BF16, from, world, 0, WORDS / world, part);
        const int64_t ns = core_clock_now_ns() - begun;
        least = ns < least ? ns : least;
    }
    return (double)least * 1e-9;
}

int main(void)
{
    struct coll_peers_options peers_options = {.identity = "bench_coll"};
    struct coll_peers *peers = NULL;
    struct coll *coll = NULL;
    if (coll_launch_find((const char *(*)(const char *))getenv, &peers_options.launch) != 0 ||
        coll_peers_open(&peers_options, &peers) != 0) {
        stop("bench_coll runs under mpirun");
    }
    const unsigned rank = coll_peers_rank(peers);
    const unsigned world = coll_peers_world(peers);
    const struct coll_options options = {
        .kind = "processes", .rank = rank, .world = world, .peers = peers, .limit_ns = limit_ns};
    if (world > 64 || coll_open(&options, &coll) != 0) {
        stop("up to 64 processes");
    }
    uint16_t *array = malloc(WORDS * sizeof *array);
    uint16_t *part = malloc(WORDS * sizeof *part);
    if (array == NULL || part == NULL) {
        fprintf(stderr, "bench_coll needs 128 MiB of memory per process\n");
        return 2;
    }
    for (size_t i = 0; i < WORDS; i++) {
        array[i] = (uint16_t)(0x3F80 + i % 64);
    }
    memset(part, 0, WORDS * sizeof *part);
    const double scalar = scalar_us(coll);
    const double reduce = reduce_seconds(coll, array, part);
    const double sum = sum_seconds(array, part, world);
    if (rank == 0) {
        printf("allreduce_us %.3f us\nreduce_s %.6f s\nsum_s %.6f s\n", scalar, reduce, sum);
    }
    coll_close(coll);
    coll_peers_close(peers, 0);
    free(array);
    free(part);
    return 0;
}
