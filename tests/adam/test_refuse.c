/* Tests refusals of invalid input, and the sizes of streams. */
#include <errno.h>

#include "core/base/err.h"
#include "tests/adam/room.h"
#include "tests/harness/child.h"
#include "tests/harness/test.h"

static struct room ours;
static struct room theirs;

/* Streams have the bytes of the table in docs/optimizers.md. */
static void streams_have_bytes(void)
{
    struct adam_options options = room_options(CORE_UPDATE_Q8);
    const uint64_t expected[ADAM_STREAMS] = {2000, 2000, 0, 2000, 1000, 1000, 16, 16};
    for (int s = 0; s < ADAM_STREAMS; s++) {
        check_uint(adam_stream_bytes(&options, (enum adam_stream)s, 1000), ==, expected[s]);
    }
    options.rule = CORE_UPDATE_LION;
    options.master = CORE_UPDATE_MASTER_F32;
    options.moments = CORE_UPDATE_F32;
    check_uint(adam_stream_bytes(&options, ADAM_V, 1000), ==, 0);
    check_uint(adam_stream_bytes(&options, ADAM_W16, 1000), ==, 0);
    check_uint(adam_stream_bytes(&options, ADAM_W32, 1000), ==, 4000);
    check_uint(adam_stream_bytes(&options, ADAM_M_SCALE, 1000), ==, 0);
    check_string(adam_rule_name(CORE_UPDATE_SGD), "sgd");
    check_string(adam_rule_name((enum core_update_rule)77), "unknown");
    check_string(adam_master_name(CORE_UPDATE_MASTER_SPLIT), "split");
    check_string(adam_type_name(CORE_UPDATE_BF16), "bf16");
}

static void refuse_group(struct adam_group group, const char *word)
{
    const struct adam_options good = room_options(CORE_UPDATE_F32);
    struct adam_options options = good;
    struct adam *adam = NULL;
    options.groups = &group;
    check_int(adam_create(&options, &adam), ==, -EINVAL);
    check_contains(core_err_message(), word);
    check_true(adam == NULL);
    adam = room_adam(&good);
    check_int(adam_group_set(adam, 0, &group), ==, -EINVAL);
    check_contains(core_err_message(), word);
    adam_destroy(adam);
}

static void bad_scalars_are_refused(void)
{
    struct adam_group group = room_group;
    group.step = 0;
    refuse_group(group, "step is 0");
    group = room_group;
    group.lr = -1e-3;
    refuse_group(group, "lr");
    group.lr = (double)NAN;
    refuse_group(group, "lr");
    group.lr = (double)INFINITY;
    refuse_group(group, "lr");
    group = room_group;
    group.beta1 = 1.0;
    refuse_group(group, "beta1");
    group = room_group;
    group.beta2 = 1.0;
    refuse_group(group, "beta2");
    group.beta2 = 1.0 - 1e-12; /* 1 in fp32 */
    refuse_group(group, "out of range for fp32");
    group = room_group;
    group.eps = -1e-8;
    refuse_group(group, "eps");
    group = room_group;
    group.decay = -0.1;
    refuse_group(group, "decay");
    group = room_group;
    group.lr = 1e39;
    refuse_group(group, "out of range for fp32");
    const struct adam_options good = room_options(CORE_UPDATE_F32);
    struct adam *adam = room_adam(&good);
    check_int(adam_group_set(adam, 1, &room_group), ==, -EINVAL);
    room_fill(&ours, &good);
    theirs = ours;
    const struct adam_arrays arrays = room_arrays(&ours);
    check_int(adam_step(adam, &arrays, 0, ROOM_COUNT, (double)NAN, NULL), ==, -EINVAL);
    check_memory(&ours, &theirs, sizeof ours);
    adam_destroy(adam);
}

#if defined(__x86_64__)
/* Runs in a child; returns the number of wrong results. */
static int refused_under_traps(void *argument)
{
    const struct adam_options options = room_options(CORE_UPDATE_F32);
    const struct adam_arrays arrays = room_arrays(&ours);
    struct adam *adam = argument;
    struct adam_group group = room_group;
    int wrong = 0;
    room_fill(&ours, &options);
    const uint32_t traps = 0x1f80 & ~0x0680u; /* invalid, divide by zero, overflow */
    __builtin_ia32_ldmxcsr(traps);
    group.lr = (double)NAN;
    wrong += adam_group_set(adam, 0, &group) != -EINVAL;
    group.lr = 1e39;
    wrong += adam_group_set(adam, 0, &group) != -EINVAL;
    wrong += adam_step(adam, &arrays, 0, ROOM_COUNT, (double)NAN, NULL) != -EINVAL;
    wrong += adam_step(adam, &arrays, 0, ROOM_COUNT, 1.0, NULL) != 0;
    wrong += adam_state_write(adam, &arrays, ADAM_VALUE_MASTER, 0, 10, ours.v) != 0;
    wrong += (__builtin_ia32_stmxcsr() & 0x1f80) != traps;
    return wrong;
}
#endif

/* Traps of invalid operations do not turn refusals into signals. */
static void traps_change_nothing(void)
{
#if defined(__x86_64__)
    const struct adam_options options = room_options(CORE_UPDATE_F32);
    struct adam *adam = room_adam(&options);
    const int rc = test_child(refused_under_traps, adam);
    adam_destroy(adam);
    check_int(rc, ==, 0);
#else
    test_skip("this machine's traps are not set here");
#endif
}

static void refuse_options(struct adam_options options)
{
    struct adam *adam = NULL;
    check_int(adam_create(&options, &adam), ==, -EINVAL);
    check_true(core_err_message()[0] != '\0' && adam == NULL);
}

static void bad_options_are_refused(void)
{
    struct adam_options options = room_options(CORE_UPDATE_FP16);
    refuse_options(options);
    options = room_options(CORE_UPDATE_F32);
    options.rule = CORE_UPDATE_RULES;
    refuse_options(options);
    options = room_options(CORE_UPDATE_F32);
    options.gradients = CORE_UPDATE_Q8;
    refuse_options(options);
    options = room_options(CORE_UPDATE_F32);
    options.groups_count = 0;
    refuse_options(options);
    options = room_options(CORE_UPDATE_F32);
    options.count = UINT64_MAX;
    refuse_options(options);
    const struct adam_run backwards[] = {{100, 0}, {50, 0}, {ROOM_COUNT, 0}};
    options = room_options(CORE_UPDATE_F32);
    options.runs = backwards;
    options.runs_count = 3;
    refuse_options(options);
    options.runs_count = 1;
    refuse_options(options);
    const struct adam_run strange[] = {{ROOM_COUNT, 1}};
    options.runs = strange;
    refuse_options(options);
    adam_destroy(NULL);
}

static void refuse_step(const struct adam_options *options, const struct adam_arrays *arrays,
                        uint64_t begin, uint64_t end, const char *word)
{
    struct adam *adam = room_adam(options);
    room_fill(&ours, options);
    theirs = ours;
    check_int(adam_step(adam, arrays, begin, end, 1.0, NULL), ==, -EINVAL);
    check_contains(core_err_message(), word);
    check_memory(&ours, &theirs, sizeof ours);
    adam_destroy(adam);
}

static void bad_arrays_are_refused(void)
{
    const struct adam_options options = room_options(CORE_UPDATE_F32);
    struct adam_arrays arrays = room_arrays(&ours);
    arrays.lo16 = ours.w16 + ROOM_COUNT - 1;
    refuse_step(&options, &arrays, 0, 10, "overlap");
    arrays = room_arrays(&ours);
    arrays.v = ours.m;
    refuse_step(&options, &arrays, 0, 10, "overlap");
    arrays = room_arrays(&ours);
    arrays.g = ours.w16;
    refuse_step(&options, &arrays, 0, 10, "overlap");
    arrays = room_arrays(&ours);
    arrays.m = (char *)ours.m + 2;
    refuse_step(&options, &arrays, 0, 10, "m at");
    arrays = room_arrays(&ours);
    arrays.g = (char *)ours.g + 1;
    refuse_step(&options, &arrays, 0, 10, "g at");
    arrays = room_arrays(&ours);
    arrays.lo16 = NULL;
    refuse_step(&options, &arrays, 0, 10, "lo16");
    arrays = room_arrays(&ours);
    arrays.w16 = (uint16_t *)(UINTPTR_MAX - 7);
    refuse_step(&options, &arrays, 0, 10, "address space");
    arrays = room_arrays(&ours);
    refuse_step(&options, &arrays, 10, 5, "range");
    refuse_step(&options, &arrays, 0, ROOM_COUNT + 1, "range");
    arrays.first = 10;
    refuse_step(&options, &arrays, 10, 20, "exceeds the array");
    arrays = room_arrays(&ours);
    const struct adam_options q8 = room_options(CORE_UPDATE_Q8);
    refuse_step(&q8, &arrays, 1, 512, "multiples");
    refuse_step(&q8, &arrays, 0, 511, "multiples");
    struct adam *adam = room_adam(&options);
    check_int(adam_step(adam, &arrays, 5, 5, 1.0, NULL), ==, 0);
    adam_destroy(adam);
}

TEST_MAIN({"streams_have_bytes", streams_have_bytes},
          {"bad_scalars_are_refused", bad_scalars_are_refused},
          {"traps_change_nothing", traps_change_nothing},
          {"bad_options_are_refused", bad_options_are_refused},
          {"bad_arrays_are_refused", bad_arrays_are_refused})
