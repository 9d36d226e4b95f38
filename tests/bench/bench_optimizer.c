/* bench_optimizer.c: the optimizer of an application: the cost of a call, a step in memory compared
 * with cpu_adam alone, and a step with states on a drive under a backward pass.
 *
 *     bench_optimizer [DIRECTORY] [--millions N] [--parameters N] [--rounds N] [--threads N]
 *                     [--only WORD]
 *
 * Weights and gradients are bf16. Prints medians, and means of submits, whose time includes time in
 * which other threads had the processor. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <tide/optimizer.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/rng.h"
#include "tests/bench/bench_adam.h"

enum { PARAMETERS_MAX = 4096, ROUNDS_MAX = BENCH_ROUNDS_MAX };
enum order { BACKWARD, FORWARD, RANDOM };
static const char *const order_names[] = {"backward", "forward", "random"};

static struct {
    const char *directory;
    const char *only;
    double millions;
    unsigned parameters, rounds, threads;
} setting = {".", NULL, 158, 300, 9, 2};

static struct tide_optim *optim;
static uint64_t elements[PARAMETERS_MAX];
static uint16_t *weights[PARAMETERS_MAX];
static uint16_t *gradients[PARAMETERS_MAX];
static unsigned turn[PARAMETERS_MAX]; /* order of submits */
static struct {
    uint64_t count;
    uint64_t ns;           /* in tide_optim_submit */
    uint64_t processor_ns; /* of this thread, between a step's first and last submit */
    uint64_t sleeps;       /* context switches of this thread in that time, to wait */
    uint64_t preempted;    /* context switches in that time, to let other threads run */
} submits;

static void check(int rc)
{
    if (rc < 0) {
        fprintf(stderr, "bench_optimizer: %s\n", tide_last_error());
        exit(1);
    }
}

static uint16_t *array(uint64_t bytes, int byte)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        fprintf(stderr, "bench_optimizer: no memory\n");
        exit(1);
    }
    (void)madvise(at, bytes, MADV_HUGEPAGE);
    memset(at, byte, bytes);
    return at;
}

/* A third of the parameters are large, as in a transformer. */
static void make_arrays(void)
{
    const unsigned large = (setting.parameters + 2) / 3;
    const uint64_t each = (uint64_t)(setting.millions * 1e6) / large;
    for (unsigned p = 0; p < setting.parameters; p++) {
        elements[p] = p % 3 == 0 ? each : 1024;
        weights[p] = array(elements[p] * 2, 0x3c);
        gradients[p] = array(elements[p] * 2, 0x30);
    }
}

static void create(uint32_t states)
{
    static struct tide_optim_parameter list[PARAMETERS_MAX];
    static char names[PARAMETERS_MAX][16];
    const struct tide_store_path store = {.struct_bytes = sizeof store,
                                          .directory = setting.directory};
    struct tide_optim_group group;
    struct tide_optim_options options;
    check(tide_optim_group_init(&group, sizeof group));
    check(tide_optim_options_init(&options, sizeof options));
    for (unsigned p = 0; p < setting.parameters; p++) {
        snprintf(names[p], sizeof names[p], "p%u", p);
        list[p] = (struct tide_optim_parameter){.struct_bytes = sizeof list[p],
                                                .name = names[p],
                                                .weights = weights[p],
                                                .elements = elements[p],
                                                .precision = TIDE_BF16,
                                                .gradients = TIDE_BF16};
    }
    options.parameters = list;
    options.parameter_count = setting.parameters;
    options.groups = &group;
    options.group_count = 1;
    options.stores = states == TIDE_STORE ? &store : NULL;
    options.store_count = states == TIDE_STORE;
    options.states = states;
    options.threads = setting.threads;
    check(tide_optim_create(NULL, &options, &optim));
}

static void shuffle(enum order order, unsigned round)
{
    const unsigned count = setting.parameters;
    for (unsigned i = 0; i < count; i++) {
        turn[i] = order == FORWARD ? i : count - 1 - i;
    }
    for (unsigned i = count; order == RANDOM && i-- > 1;) {
        const unsigned other = core_rng_philox(round, 0, i).word[0] % (i + 1);
        const unsigned kept = turn[i];
        turn[i] = turn[other];
        turn[other] = kept;
    }
}

static void sleep_until(int64_t ns)
{
    const int64_t left = ns - core_clock_now_ns();
    if (left > 0) {
        const struct timespec wait = {left / 1000000000, left % 1000000000};
        (void)nanosleep(&wait, NULL);
    }
}

static uint64_t processor_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static struct rusage switches(void)
{
    struct rusage usage;
    (void)getrusage(RUSAGE_THREAD, &usage);
    return usage;
}

/* Returns the seconds of a step whose gradients come during `backward_s`, after a pause of
 * `forward_s`. */
static double step(enum order order, unsigned round, double forward_s, double backward_s)
{
    uint64_t token = 0;
    uint64_t done = 0;
    shuffle(order, round);
    const int64_t begin_ns = core_clock_now_ns();
    const int64_t forward_ns = begin_ns + (int64_t)(forward_s * 1e9);
    sleep_until(forward_ns);
    const struct rusage before = switches();
    const uint64_t before_ns = processor_ns();
    for (unsigned i = 0; i < setting.parameters; i++) {
        done += elements[turn[i]];
        sleep_until(forward_ns +
                    (int64_t)(backward_s * 1e9 * (double)done / (setting.millions * 1e6)));
        const int64_t submit_ns = core_clock_now_ns();
        check(tide_optim_submit(optim, turn[i], gradients[turn[i]], 1, &token));
        submits.ns += (uint64_t)(core_clock_now_ns() - submit_ns);
        submits.count++;
    }
    const struct rusage after = switches();
    submits.processor_ns += processor_ns() - before_ns;
    submits.sleeps += (uint64_t)(after.ru_nvcsw - before.ru_nvcsw);
    submits.preempted += (uint64_t)(after.ru_nivcsw - before.ru_nivcsw);
    check(tide_optim_step(optim, &token));
    check(tide_optim_wait(optim, token));
    return (double)(core_clock_now_ns() - begin_ns) / 1e9;
}

static double median_step(enum order order, double forward_s, double backward_s)
{
    double seconds[ROUNDS_MAX];
    for (unsigned i = 0; i < 2; i++) {
        (void)step(order, i, forward_s, backward_s);
    }
    memset(&submits, 0, sizeof submits);
    for (unsigned i = 0; i < setting.rounds; i++) {
        seconds[i] = step(order, 100 + i, forward_s, backward_s);
    }
    return bench_median(seconds, setting.rounds);
}

static void in_memory(void)
{
    static const struct bench_format format = {"split_bf16", CORE_UPDATE_ADAMW,
                                               CORE_UPDATE_MASTER_SPLIT, CORE_UPDATE_BF16,
                                               CORE_UPDATE_F32};
    struct bench_setting alone = {.count = (uint64_t)(setting.millions * 1e6),
                                  .rounds = setting.rounds};
    const struct core_team_options team = {.name = "alone", .count = setting.threads};
    double ours[ROUNDS_MAX];
    double theirs[ROUNDS_MAX];
    double ratios[ROUNDS_MAX];
    struct bench_arena arena;
    create(TIDE_HOST);
    if (core_team_create(&team, &alone.team) != 0) {
        check(-1);
    }
    bench_arena_open(&arena, &alone, &format);
    for (unsigned i = 0; i < 2; i++) {
        (void)step(BACKWARD, i, 0, 0);
        (void)bench_arena_step(&arena);
    }
    memset(&submits, 0, sizeof submits);
    for (unsigned i = 0; i < setting.rounds; i++) {
        ours[i] = step(BACKWARD, i, 0, 0);
        theirs[i] = bench_arena_step(&arena);
        ratios[i] = ours[i] / theirs[i];
    }
    bench_arena_close(&arena);
    core_team_destroy(alone.team);
    tide_optim_destroy(optim);
    printf("memory_step %.2f ms\n", bench_median(ours, setting.rounds) * 1e3);
    printf("memory_adam_alone %.2f ms\n", bench_median(theirs, setting.rounds) * 1e3);
    printf("memory_over_adam_alone %.3f x\n", bench_median(ratios, setting.rounds));
    printf("memory_submit %.2f us\n", (double)submits.ns / (double)submits.count / 1e3);
    printf("memory_submit_processor %.2f us\n",
           (double)submits.processor_ns / (double)submits.count / 1e3);
    printf("memory_submit_sleeps %.2f per step\n", (double)submits.sleeps / setting.rounds);
    printf("memory_submit_preempted %.2f per step\n", (double)submits.preempted / setting.rounds);
}

/* Times steps with states on the drive: with all gradients at once, and during a backward pass in
 * each order. */
static void on_drive(void)
{
    create(TIDE_STORE);
    const double bare_s = median_step(BACKWARD, 0, 0);
    printf("drive_step %.1f ms\n", bare_s * 1e3);
    for (int order = BACKWARD; order <= RANDOM; order++) {
        for (int part = 1; part <= 2; part++) {
            const double backward_s = bare_s * part;
            const double step_s = median_step((enum order)order, backward_s / 2, backward_s);
            printf("drive_%s_%d %.3f x\n", order_names[order], part, step_s / (1.5 * backward_s));
            fflush(stdout);
        }
    }
    printf("drive_submit %.2f us\n", (double)submits.ns / (double)submits.count / 1e3);
    tide_optim_destroy(optim);
}

static void usage(void)
{
    fprintf(stderr,
            "usage: bench_optimizer [DIRECTORY] [--millions N] [--parameters N] [--rounds N] "
            "[--threads N] [--only memory|drive]\n");
    exit(2);
}

static void options(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-') {
            setting.directory = argv[i];
            continue;
        }
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        unsigned *number = strcmp(argv[i], "--parameters") == 0 ? &setting.parameters
                           : strcmp(argv[i], "--rounds") == 0   ? &setting.rounds
                           : strcmp(argv[i], "--threads") == 0  ? &setting.threads
                                                                : NULL;
        if (number != NULL) {
            *number = (unsigned)strtoul(value, NULL, 10);
        } else if (strcmp(argv[i], "--millions") == 0) {
            setting.millions = strtod(value, NULL);
        } else if (strcmp(argv[i], "--only") == 0) {
            setting.only = value;
        } else {
            usage();
        }
        i++;
    }
    if (setting.parameters < 3 || setting.parameters > PARAMETERS_MAX || setting.rounds < 1 ||
        setting.rounds > ROUNDS_MAX || setting.threads < 1 || setting.millions < 1) {
        usage();
    }
}

int main(int argc, char **argv)
{
    options(argc, argv);
    make_arrays();
    if (setting.only == NULL || strcmp(setting.only, "memory") == 0) {
        in_memory();
    }
    if (setting.only == NULL || strcmp(setting.only, "drive") == 0) {
        on_drive();
    }
    return 0;
}
