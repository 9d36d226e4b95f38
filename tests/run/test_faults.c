/* test_faults.c: if a drive fails, a run ends with the bits of an undisturbed run or with an
 * error that has a message. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aio/backend.h"
#include "core/base/err.h"
#include "core/base/rng.h"
#include "offload/run/engine_internal.h"
#include "offload/run/rank_internal.h"
#include "tests/aio/fault.h"
#include "tests/harness/test.h"
#include "tests/run/case.h"

/* A rule that hits no operation is tried at other points. */
enum { STEPS = 2, PATIENCE_SECONDS = 60, TRIES = 16 };

/* time limit of an operation in runs whose drive stalls */
static const int64_t short_limit_ns = 150000000;

/* ---- options ---- */

struct setting {
    const char *name;
    const char *io; /* NULL: chosen */
    enum plan_acts acts;
    enum plan_order order;
    enum plan_where grads;
    uint32_t micro_batches;
    uint32_t paths;
    uint32_t ranks; /* each has a store whose drive injects the faults */
    bool inside;    /* no clipping: updates run inside backward */
    /* norm limit of speculative updates; 0: not speculative */
    double guesses;
};

static const struct setting settings[] = {
    {.name = "deferred", .io = "mem", .acts = PLAN_ACTS_RECOMPUTE, .paths = 1},
    {.name = "inside", .io = "mem", .acts = PLAN_ACTS_KEEP, .paths = 1, .inside = true},
    {.name = "activations too", .io = "mem", .acts = PLAN_ACTS_STORE, .paths = 1},
    {.name = "gradients too",
     .io = "mem",
     .acts = PLAN_ACTS_STORE,
     .order = PLAN_ORDER_LAYER,
     .grads = PLAN_WHERE_STORE,
     .micro_batches = 2,
     .paths = 1},
    {.name = "guesses that are right",
     .io = "mem",
     .acts = PLAN_ACTS_RECOMPUTE,
     .paths = 1,
     .guesses = 1e6},
    {.name = "guesses that are wrong",
     .io = "mem",
     .acts = PLAN_ACTS_RECOMPUTE,
     .paths = 1,
     .guesses = 1e-3},
    {.name = "two paths", .io = "mem", .acts = PLAN_ACTS_RECOMPUTE, .paths = 2},
    {.name = "two ranks", .io = "mem", .acts = PLAN_ACTS_RECOMPUTE, .paths = 1, .ranks = 2},
    {.name = "files", .io = "threads", .acts = PLAN_ACTS_RECOMPUTE, .paths = 1},
    {.name = "files, chosen back end", .acts = PLAN_ACTS_STORE, .paths = 1},
};
enum { SETTINGS = sizeof settings / sizeof settings[0], FILES = SETTINGS - 2 };

static struct run_options options_of(const struct setting *setting, struct aio_fault *fault)
{
    static char directories[2][600];
    struct run_options options = case_options();
    options.micro_batches = setting->micro_batches > 0 ? setting->micro_batches : 1;
    options.world = setting->ranks > 0 ? setting->ranks : 1;
    options.stage = setting->ranks > 0 ? 3 : 0;
    options.threads = setting->ranks > 0 ? 1 : options.threads;
    options.clip = setting->inside ? 0 : setting->guesses > 0 ? setting->guesses : options.clip;
    options.guesses_given = true;
    options.guesses = setting->guesses > 0 ? 0xff : 0;
    options.wishes = (struct plan_wishes){
        .weights = PLAN_WHERE_STORE,
        .states = PLAN_WHERE_STORE,
        .grads = setting->grads,
        .acts = setting->acts,
        .order = setting->order,
        .timing = setting->inside        ? PLAN_TIMING_INSIDE
                  : setting->guesses > 0 ? PLAN_TIMING_SPECULATIVE
                                         : PLAN_TIMING_DEFERRED,
        .chunk_elements = 65536,
    };
    options.io = setting->io;
    options.store_count = setting->paths;
    options.budgets.store_bytes = UINT64_C(1) << 30;
    for (unsigned i = 0; i < setting->paths; i++) {
        snprintf(directories[i], sizeof directories[i], "%s/store %u", test_directory(), i);
        options.stores[i] = (struct store_path){.directory = directories[i], .weight = 1};
    }
    if (fault != NULL && setting->io != NULL) {
        fault->inner = aio_backend_find(setting->io);
    }
    options.stores[0].recipe = aio_fault_recipe(fault);
    return options;
}

/* ---- faults that are drawn at random ---- */

enum outcome { EQUAL, ERROR, EITHER };

struct day {
    const char *name;
    struct aio_fault_rule rule; /* `from` comes from the seed */
    enum outcome outcome;       /* if the rule hit an operation */
    int code;                   /* of the error; 0: any */
    bool slow;                  /* whether the run waits for the drive's limit */
};

static const struct day days[] = {
    {.name = "short", .rule = {.kind = AIO_FAULT_SHORT}, .outcome = EQUAL},
    {.name = "often short", .rule = {.kind = AIO_FAULT_SHORT, .one_in = 4}, .outcome = EQUAL},
    {.name = "late", .rule = {.kind = AIO_FAULT_LATE}, .outcome = EQUAL},
    {.name = "often late", .rule = {.kind = AIO_FAULT_LATE, .one_in = 3}, .outcome = EQUAL},
    {.name = "reordered", .rule = {.kind = AIO_FAULT_REORDER, .one_in = 2}, .outcome = EQUAL},
    {.name = "answered twice", .rule = {.kind = AIO_FAULT_DUPLICATE}, .outcome = EQUAL},
    {.name = "unknown completions",
     .rule = {.kind = AIO_FAULT_UNKNOWN, .one_in = 5},
     .outcome = EQUAL},
    {.name = "failed once", .rule = {.kind = AIO_FAULT_ERROR}, .outcome = EQUAL},
    {.name = "busy",
     .rule = {.kind = AIO_FAULT_ERROR, .one_in = 3, .argument = EAGAIN},
     .outcome = EQUAL},
    {.name = "submit refused", .rule = {.kind = AIO_FAULT_SUBMIT, .one_in = 3}, .outcome = EQUAL},
    {.name = "reap interrupted", .rule = {.kind = AIO_FAULT_REAP, .one_in = 3}, .outcome = EQUAL},
    {.name = "failed for ever",
     .rule = {.kind = AIO_FAULT_ERROR, .count = AIO_FAULT_FOREVER},
     .outcome = ERROR,
     .code = -EIO},
    {.name = "full",
     .rule = {.kind = AIO_FAULT_ERROR, .argument = ENOSPC, .writes_only = true},
     .outcome = ERROR,
     .code = -ENOSPC},
    {.name = "ended", .rule = {.kind = AIO_FAULT_END}, .outcome = ERROR, .code = -ENODATA},
    {.name = "gone",
     .rule = {.kind = AIO_FAULT_SUBMIT, .count = AIO_FAULT_FOREVER, .argument = ENODEV},
     .outcome = ERROR},
    {.name = "read lost", .rule = {.kind = AIO_FAULT_LOST, .reads_only = true}, .outcome = EQUAL},
    {.name = "read torn", .rule = {.kind = AIO_FAULT_TORN, .reads_only = true}, .outcome = EQUAL},
    {.name = "read misdirected",
     .rule = {.kind = AIO_FAULT_MISDIRECTED, .reads_only = true},
     .outcome = EQUAL},
    {.name = "read corrupt",
     .rule = {.kind = AIO_FAULT_CORRUPT, .reads_only = true},
     .outcome = EQUAL},
    {.name = "reads corrupt for ever",
     .rule = {.kind = AIO_FAULT_CORRUPT, .reads_only = true, .count = AIO_FAULT_FOREVER},
     .outcome = ERROR,
     .code = -EBADMSG},
    /* A lost write is harmless if the drive has the same bytes: new moments and new drives are
     * zeros. */
    {.name = "write lost",
     .rule = {.kind = AIO_FAULT_LOST, .writes_only = true},
     .outcome = EITHER},
    {.name = "write torn",
     .rule = {.kind = AIO_FAULT_TORN, .writes_only = true},
     .outcome = EITHER},
    {.name = "write misdirected",
     .rule = {.kind = AIO_FAULT_MISDIRECTED, .writes_only = true},
     .outcome = EITHER},
    {.name = "write corrupt",
     .rule = {.kind = AIO_FAULT_CORRUPT, .writes_only = true},
     .outcome = ERROR,
     .code = -EBADMSG},
    {.name = "stalled",
     .rule = {.kind = AIO_FAULT_STALLED},
     .outcome = ERROR,
     .code = -ETIMEDOUT,
     .slow = true},
};
enum { DAYS = sizeof days / sizeof days[0], STRIDE = TEST_RACES ? 6 : TEST_COUNT(1, 3) };

/* ---- a run that hangs is aborted ---- */

static char watched[256];

static void on_alarm(int number)
{
    (void)number;
    (void)!write(STDERR_FILENO, watched, strlen(watched));
    abort();
}

static void watch(const char *name)
{
    snprintf(watched, sizeof watched, "%s did not end\n", name);
    signal(SIGALRM, on_alarm);
    alarm(PATIENCE_SECONDS);
}

/* ---- runs with faults ---- */

/* A run of a setting without a fault. */
struct good_day {
    struct case_outcome outcome;
    uint64_t ops;
};

static void have_good_day(const struct case_model *made, const struct setting *setting,
                          struct good_day *out)
{
    struct aio_fault fault = {.rules_count = 0};
    const struct run_options options = options_of(setting, &fault);
    watch(setting->name);
    case_run_engine(made, &options, STEPS, &out->outcome);
    alarm(0);
    out->ops = fault.ops;
    check_uint(out->ops, >, 30);
}

/* Checks that the stores' directories were removed. */
static void check_nothing_left(void)
{
    struct stat info;
    char path[700];
    for (unsigned i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/store %u", test_directory(), i);
        check_int(stat(path, &info), ==, -1);
    }
}

struct tally {
    unsigned equal;
    unsigned errors;
    unsigned missed; /* the rule hit nothing */
};

/* Returns whether the rule hit an operation. */
static bool have_bad_day(const struct case_model *made, const struct setting *setting,
                         const struct good_day *good, const struct day *day, uint64_t seed,
                         struct tally *tally)
{
    const bool calls = day->rule.kind == AIO_FAULT_SUBMIT || day->rule.kind == AIO_FAULT_REAP;
    /* A call submits several operations. */
    const uint64_t points = calls ? good->ops / 4 : good->ops;
    struct aio_fault fault = {.seed = seed, .rules_count = 1, .rules = {day->rule}};
    struct run_options options = options_of(setting, &fault);
    struct case_outcome outcome;
    char name[200];
    fault.rules[0].from = 1 + core_rng_philox(seed, 1, 0).word[0] % points;
    options.io_limit_ns = day->slow ? short_limit_ns : 0;
    snprintf(name, sizeof name, "%s, %s, seed %llu, from %llu of %llu", setting->name, day->name,
             (unsigned long long)seed, (unsigned long long)fault.rules[0].from,
             (unsigned long long)points);
    watch(name);
    int rc = case_try_engine(made, &options, STEPS, &outcome);
    alarm(0);
    const bool hit = fault.hits[day->rule.kind] > 0;
    if (!hit && day->slow && rc == -ETIMEDOUT) {
        check_nothing_left(); /* a busy drive exceeded the short limit without a fault */
        tally->missed++;
        return false;
    }
    tally->equal += hit && rc == 0;
    tally->errors += hit && rc != 0;
    tally->missed += !hit;
    if (rc == 0) {
        case_check_equal(&good->outcome, &outcome, name);
    }
    if (hit && day->outcome != EITHER && (rc != 0) != (day->outcome == ERROR)) {
        test_fail(__FILE__, __LINE__, "%s: ended with %d: %s", name, rc, outcome.message);
    }
    if (rc != 0 && (!hit || outcome.message[0] == '\0' || (day->code != 0 && rc != day->code))) {
        test_fail(__FILE__, __LINE__, "%s: ended with %d, not %d: %s", name, rc, day->code,
                  outcome.message);
    }
    check_nothing_left();
    return hit;
}

/* Faults end a run as their rows say. */
static void bad_days(void)
{
    struct case_model made;
    struct tally tally = {0};
    case_model_make(&made, "llama tied, whole");
    for (unsigned s = 0; s < SETTINGS; s++) {
        struct good_day good;
        have_good_day(&made, &settings[s], &good);
        for (unsigned d = s % STRIDE; d < DAYS; d += STRIDE) {
            const unsigned rounds = test_full() ? 8 : 1;
            for (unsigned round = 0; round < rounds; round++) {
                const uint64_t seed = (((uint64_t)round * SETTINGS + s) * DAYS + d) * TRIES;
                bool hit = false;
                for (unsigned t = 0; t < TRIES && !hit; t++) {
                    hit = have_bad_day(&made, &settings[s], &good, &days[d], seed + t, &tally);
                }
            }
        }
    }
    test_note("%u runs recovered bit for bit, %u ended in an error, %u met no fault", tally.equal,
              tally.errors, tally.missed);
    check_uint(tally.equal + tally.errors + tally.missed, >=, 200 / STRIDE);
    check_uint(tally.equal + tally.errors, >=, SETTINGS * DAYS / STRIDE - 3);
    check_uint(tally.errors, >=, 50 / STRIDE);
    case_model_free(&made);
}

/* After an error, steps and evaluations return that error, and the same run can be repeated. */
static void after_an_error(void)
{
    struct case_model made;
    struct run_prepared *prepared = NULL;
    struct run_engine *engine = NULL;
    struct good_day good;
    int32_t ids[CASE_ROWS * CASE_LENGTH];
    struct run_step step;
    struct kern_loss loss;
    case_model_make(&made, "llama tied, whole");
    have_good_day(&made, &settings[FILES], &good);
    struct aio_fault fault = {
        .rules_count = 1,
        .rules = {{.kind = AIO_FAULT_ERROR, .from = good.ops / 2, .count = AIO_FAULT_FOREVER}}};
    const struct run_options options = options_of(&settings[FILES], &fault);
    check_int(run_prepared_create(made.model, &options, case_rates(), &prepared), ==, 0);
    const struct run_engine_options engine_options = {
        .prepared = prepared, .options = &options, .model = made.model, .files = made.files};
    check_int(run_engine_create(&engine_options, &engine), ==, 0);
    const struct model_batch batch = case_batch(&made, 0, 0, ids);
    int rc = 0;
    for (unsigned s = 0; s < STEPS && rc == 0; s++) {
        rc = run_engine_step(engine, &batch, 1, 1e-3, &step);
    }
    check_int(rc, ==, -EIO);
    check_contains(core_err_message(), "tide-extents");
    check_contains(core_err_message(), " failed 4 times: ");
    check_int(run_engine_step(engine, &batch, 1, 1e-3, &step), ==, -EIO);
    check_contains(core_err_message(), "before this step");
    check_int(run_engine_evaluate(engine, &batch, &loss), ==, -EIO);
    check_contains(core_err_message(), "before this call");
    check_true(run_rank_drain(engine->workers[0].rank) != 0);
    struct store_stats stats;
    store_stats_take(engine->workers[0].rank->store, &stats);
    check_true(stats.read_bytes > 0 && stats.write_bytes > 0);
    run_engine_destroy(engine);
    run_prepared_destroy(prepared);
    check_nothing_left();
    struct good_day again;
    have_good_day(&made, &settings[FILES], &again);
    case_check_equal(&good.outcome, &again.outcome, "after an error");
    case_model_free(&made);
}

/* If the executor's limit is shorter than the drive's, a message names what does not move. */
static void a_lane_that_stands_still(void)
{
    struct case_model made;
    struct good_day good;
    case_model_make(&made, "llama tied, whole");
    for (unsigned s = 0; s < SETTINGS; s++) {
        if (settings[s].ranks > 0 || strcmp(settings[s].name, "deferred") == 0) {
            have_good_day(&made, &settings[s], &good);
            struct aio_fault fault = {
                .rules_count = 1, .rules = {{.kind = AIO_FAULT_STALLED, .from = good.ops * 3 / 4}}};
            struct run_options options = options_of(&settings[s], &fault);
            struct case_outcome outcome;
            options.stall_limit_ns = 1500000000; /* longer than the pauses of a busy machine */
            options.io_limit_ns = 6000000000;
            watch(settings[s].name);
            check_int(case_try_engine(&made, &options, STEPS, &outcome), ==, -ETIMEDOUT);
            alarm(0);
            check_uint(fault.hits[AIO_FAULT_STALLED], ==, 1);
            check_true(strstr(outcome.message, "does not finish its command") != NULL ||
                       strstr(outcome.message, "did not reach") != NULL);
        }
    }
    case_model_free(&made);
}

/* stand_still() waits in its first call of the phase "load" until `released` is set. */
static struct {
    atomic_uint calls;
    atomic_bool released;
} stand;

static int stand_still(void *user, const char *phase, uint64_t done, uint64_t total)
{
    (void)user;
    (void)done;
    (void)total;
    if (strcmp(phase, "load") == 0 && atomic_fetch_add(&stand.calls, 1) == 0) {
        while (!atomic_load(&stand.released)) {
            usleep(1000);
        }
    }
    return 0;
}

/* If a rank makes no progress, creating the engine fails, and the rank's memory is not freed. */
static void a_rank_that_stands_still(void)
{
    static struct case_model made; /* static: the rank may use this until the program ends */
    static struct run_options options;
    static struct run_prepared *prepared;
    struct run_engine *engine = NULL;
    case_model_make(&made, "llama tied, whole");
    options = case_options();
    options.world = 2;
    options.stage = 3;
    options.threads = 1;
    options.stall_limit_ns = 250000000;
    check_int(run_prepared_create(made.model, &options, case_rates(), &prepared), ==, 0);
    const struct run_engine_options engine_options = {.prepared = prepared,
                                                      .options = &options,
                                                      .model = made.model,
                                                      .files = made.files,
                                                      .progress = stand_still};
    watch("a rank");
    check_int(run_engine_create(&engine_options, &engine), ==, -ETIMEDOUT);
    check_contains(core_err_message(), "made no progress for 0.5 s");
    check_int(run_options_stall_ns(&options), ==, 250000000);
    options.stall_limit_ns = 0;
    check_int(run_options_stall_ns(&options), >, INT64_C(60) * 1000000000);
    const unsigned calls = atomic_load(&stand.calls);
    atomic_store(&stand.released, true);
    while (atomic_load(&stand.calls) == calls) { /* the rank continues with its memory */
        usleep(1000);
    }
    alarm(0);
}

TEST_MAIN({"bad_days", bad_days}, {"after_an_error", after_an_error},
          {"a_lane_that_stands_still", a_lane_that_stands_still},
          {"a_rank_that_stands_still", a_rank_that_stands_still})
