/* check_bench.c: times the variants on 65,536 elements, which fit in the L2 cache of large
 * processors. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/cpus.h"
#include "tests/adam/check.h"
#include "tests/adam/ref.h"

enum { BENCH_COUNT = 1 << 16 };

struct bench_room {
    float x[4][BENCH_COUNT];
    uint16_t half[2][BENCH_COUNT];
    float scale[2][BENCH_COUNT / CORE_UPDATE_Q8_BLOCK];
};

static void bench_update(const struct check_variant *variant, const struct adam_options *options,
                         struct bench_room *b)
{
    struct adam_options o = *options;
    o.count = BENCH_COUNT;
    o.cpu_without = CORE_CPU_ALL & ~variant->mask;
    struct adam *adam = NULL;
    if (adam_create(&o, &adam) != 0) {
        return;
    }
    memset(b, 0, sizeof *b);
    for (uint64_t i = 0; i < BENCH_COUNT; i++) {
        ref_store(b->x[1], o.gradients, i, (float)(check_random_word() % 2001) * 1e-6f - 1e-3f);
    }
    struct adam_arrays a = {.count = BENCH_COUNT,
                            .w16 = b->half[0],
                            .lo16 = b->half[1],
                            .w32 = b->x[0],
                            .g = b->x[1],
                            .m = b->x[2],
                            .v = b->x[3],
                            .m_scale = b->scale[0],
                            .v_scale = b->scale[1]};
    int64_t best_ns = INT64_MAX;
    for (int k = 0; k < 15; k++) {
        const int64_t start_ns = core_clock_now_ns();
        adam_step(adam, &a, 0, BENCH_COUNT, 1.0, NULL);
        const int64_t took_ns = core_clock_now_ns() - start_ns;
        best_ns = took_ns < best_ns ? took_ns : best_ns;
    }
    printf("%s_%s_%s_%s_%s %.3f ns\n", adam_rule_name(o.rule), adam_master_name(o.master),
           adam_type_name(o.gradients), adam_type_name(o.moments), variant->name,
           (double)best_ns / BENCH_COUNT);
    adam_destroy(adam);
}

int check_bench(void)
{
    struct bench_room *room = malloc(sizeof *room);
    for (int rule = 0; room != NULL && rule < CORE_UPDATE_RULES; rule++) {
        for (int n = 0; n < REF_FORMATS; n++) {
            const struct adam_options o = ref_options((enum core_update_rule)rule, n);
            for (int i = 0; i < CHECK_VARIANTS; i++) {
                if (check_present(&check_variants[i])) {
                    bench_update(&check_variants[i], &o, room);
                }
            }
        }
    }
    free(room);
    return 0;
}
