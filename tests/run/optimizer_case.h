/* optimizer_case.h: parameters of several types, ways to update them with one optimizer, and
 * separate updates as the reference. */
#ifndef TESTS_RUN_OPTIMIZER_CASE_H
#define TESTS_RUN_OPTIMIZER_CASE_H

#include <pthread.h>

#include "core/base/half.h"
#include "core/base/rng.h"
#include "cpu_adam/adam.h"
#include "offload/run/optimizer.h"
#include "tests/aio/fault.h"
#include "tests/harness/test.h"
#include "tests/run/case.h"

enum {
    PARAMETERS = 12,
    GROUPS = 2,
    STEPS = 4,
    WAYS = 9,
    /* ways[ON_DEVICE] is on a device with states on the drive; the way before has states in
     * memory */
    ON_DEVICE = 7,
    WORLD_MAX = 3,
    SHARED = TEST_COUNT(5, 2) << 16 /* elements of a block that parameters share */
};

/* A test may change this while it runs. */
extern struct form {
    uint64_t elements;
    enum core_update_type weights, gradients;
} forms[PARAMETERS];
extern const struct adam_group groups[GROUPS];

/* Options that must not change bits. */
struct way {
    const char *name;
    enum plan_where states;
    uint64_t chunk_elements;
    uint32_t slots;
    unsigned threads;
    /* order of submits: 0 backward, 1 forward, 2 shuffled, 3 different in each step, 4 backward,
     * but one parameter is last in every second step */
    int order;
    const char *io;
    const char *device; /* device of weights and gradients */
};

/* Options that change bits. */
struct rules {
    enum core_update_rule rule;
    enum core_update_type moments;
    double clip;
    double loss_scale;
    bool may_skip;
    bool sums;
    int absent; /* in step s parameter (s * absent) % PARAMETERS has no gradient; 0: all have one */
};

struct arrays {
    void *weights[PARAMETERS];
    void *gradients[PARAMETERS];
};

extern const struct way ways[WAYS];
extern const struct rules plain;

static inline size_t bytes_of(enum core_update_type type)
{
    return type == CORE_UPDATE_F32 ? 4 : 2;
}

static inline __attribute__((always_inline)) void store(enum core_update_type type, void *array,
                                                        uint64_t i, float value)
{
    if (type == CORE_UPDATE_F32) {
        ((float *)array)[i] = value;
    } else {
        ((uint16_t *)array)[i] = type == CORE_UPDATE_BF16 ? core_f32_to_bf16(value)
                                                          : core_f32_to_fp16(value);
    }
}

static inline __attribute__((always_inline)) float load(enum core_update_type type,
                                                        const void *array, uint64_t i)
{
    return type == CORE_UPDATE_F32    ? ((const float *)array)[i]
           : type == CORE_UPDATE_BF16 ? core_bf16_to_f32(((const uint16_t *)array)[i])
                                      : core_fp16_to_f32(((const uint16_t *)array)[i]);
}

/* Returns a number from -0.5 to 0.5 that depends only on the arguments. */
static inline __attribute__((always_inline)) float draw(uint64_t seed, unsigned stream, uint64_t i)
{
    enum { NOISE = 1 << 16 };
    static float noise[NOISE];
    if (noise[1] >= 0 && noise[1] <= 0) {
        for (uint64_t n = 0; n < NOISE; n++) {
            noise[n] = core_rng_unit(core_rng_philox(1, 0, n).word[0]) - 0.5f;
        }
    }
    return noise[(i + i / NOISE + seed * 7919 + stream * 104729) % NOISE];
}

void make_arrays(struct arrays *arrays);
void free_arrays(struct arrays *arrays);
/* The gradient depends on the weights, so that an error shows in all later steps. */
void make_gradient(const struct arrays *arrays, unsigned p, unsigned step, double scale);
void compare(const struct way *way, const struct arrays *one, const struct arrays *other);

static inline bool is_absent(const struct rules *rules, unsigned step, unsigned p)
{
    return rules->absent > 0 && (step * (unsigned)rules->absent) % PARAMETERS == p;
}

/* ---- the reference ---- */

struct alone {
    struct adam *adam;
    struct adam_arrays arrays;
    void *memory[6];
    uint64_t updates;
};

void alone_begin(struct alone *alone, const struct rules *rules, unsigned p, void *weights);
void alone_end(struct alone *alone);
void alone_step(struct alone *alone, unsigned p, const void *gradient, double scale);

/* ---- the optimizer ---- */

/* type of the run; parameters may have other types */
extern enum core_update_type measured_type;

/* Sums values over "processes": optimizers of this process with common arrays, created one after
 * another. */
struct meeting {
    pthread_barrier_t barrier;
    pthread_mutex_t lock;
    double *sums; /* [count] */
    size_t count;
};

extern struct share {
    uint32_t world, rank;
    struct meeting *meeting; /* NULL: nothing is summed */
    char directories[WORLD_MAX][600];
} share;

int try_optimizer(const struct way *way, const struct rules *rules, const struct arrays *arrays,
                  struct aio_fault *fault, struct run_optimizer **out);
/* Fails the test on an error. */
struct run_optimizer *make_optimizer(const struct way *way, const struct rules *rules,
                                     const struct arrays *arrays);
/* Returns the parameter whose gradient is submitted i-th in a step. */
unsigned nth(const struct way *way, unsigned step, unsigned i);
/* Waits for the last update of each parameter and submits its next gradient. */
void submit_all(struct run_optimizer *optimizer, const struct arrays *arrays, const struct way *way,
                unsigned step);

#endif
