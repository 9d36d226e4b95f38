/* bench_adam_peer.c: times other optimizers, in a separate process, in turns with ours. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/bench/bench_adam.h"
#include "tests/bench/bench_peer.h"

/* Pauses before a turn, because threads of OpenMP occupy their processors for some milliseconds
 * after their work. */
static void rest(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
}

static double peer_seconds(const char *name)
{
    char line[64];
    rest();
    bench_peer_ask(name, "seconds ", line, sizeof line);
    return strtod(line, NULL);
}

static double our_seconds(struct bench_arena *arena)
{
    rest();
    return bench_arena_step(arena);
}

void bench_adam_against_peers(const struct bench_setting *setting, const char *python,
                              const struct bench_format *ours)
{
    static const char *const names[] = {"deepspeed_with_casts", "deepspeed_bare",
                                        "torch_fused_with_casts", "torch_fused_bare"};
    char count[32];
    struct bench_arena arena;
    snprintf(count, sizeof count, "%llu", (unsigned long long)setting->count);
    bench_peer_start(python, "adam_peer.py", (const char *const[3]){count, NULL, NULL});
    bench_arena_open(&arena, setting, ours);
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        double theirs[BENCH_ROUNDS_MAX];
        double ours_taken[BENCH_ROUNDS_MAX];
        double ratios[BENCH_ROUNDS_MAX];
        peer_seconds(names[n]); /* the peer's first touch of its memory */
        for (unsigned i = 0; i < setting->rounds; i++) {
            double mine = i % 2 == 0 ? our_seconds(&arena) : 0.0;
            theirs[i] = peer_seconds(names[n]);
            mine = i % 2 == 0 ? mine : our_seconds(&arena);
            ratios[i] = theirs[i] / mine;
            ours_taken[i] = mine;
        }
        printf("%s_gparam_s %.4f 1e9_per_s\n", names[n],
               (double)setting->count / bench_median(theirs, setting->rounds) / 1e9);
        printf("%s_beside_it_gparam_s %.4f 1e9_per_s\n", ours->name,
               (double)setting->count / bench_median(ours_taken, setting->rounds) / 1e9);
        printf("%s_over_%s %.3f ratio\n", ours->name, names[n],
               bench_median(ratios, setting->rounds));
        fflush(stdout);
    }
    bench_arena_close(&arena);
    bench_peer_end();
}
