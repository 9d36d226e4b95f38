/* test_host.c: the library does not change the application's floating-point modes, signals,
 * environment or output. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <tide/checkpoint.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/json/json.h"
#include "tests/api/world.h"

enum { STEPS = 3 };

static struct world world;

/* Takes STEPS steps; writes the last loss. */
static int train(struct tide_context *context, const struct world *of, double *loss)
{
    struct tide_engine *engine = NULL;
    struct tide_step step = {.struct_bytes = sizeof step};
    int rc = tide_engine_create(context, &of->options, &engine);
    for (int s = 0; rc == 0 && s < STEPS; s++) {
        rc = tide_engine_step(engine, &of->batch, 1, 1e-3, &step);
    }
    tide_engine_destroy(engine);
    *loss = step.loss;
    return rc;
}

/* Returns rounding, flush-to-zero, denormals-are-zero and exception masks of x86; 0 on other
 * processors. */
static unsigned read_mode(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_stmxcsr() & 0xffc0U;
#else
    return 0;
#endif
}

static void set_mode(int rounding, bool flush)
{
    (void)fesetround(rounding);
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | (flush ? 0x8040U : 0));
#else
    (void)flush;
#endif
}

struct guest {
    struct world world;
    int rounding;
    bool flush;
    unsigned lines;
    int rc;
    double loss;
    bool kept;
};

static void count_line(void *user, uint32_t level, const char *line)
{
    (void)level;
    (void)line;
    __atomic_add_fetch((unsigned *)user, 1, __ATOMIC_RELAXED);
}

static void *be_guest(void *argument)
{
    struct guest *guest = argument;
    const struct tide_context_options options = {.struct_bytes = sizeof options,
                                                 .log_level = TIDE_LOG_DEBUG,
                                                 .log = count_line,
                                                 .user = &guest->lines};
    struct tide_context *context = NULL;
    set_mode(guest->rounding, guest->flush);
    const unsigned mode = read_mode();
    guest->rc = tide_context_create(&options, &context);
    guest->rc = guest->rc != 0 ? guest->rc : train(context, &guest->world, &guest->loss);
    tide_context_destroy(context);
    guest->kept = fegetround() == guest->rounding && read_mode() == mode;
    return NULL;
}

/* A thread's floating-point modes do not change the results, and the library keeps the modes. */
static void modes(void)
{
    static struct guest guests[4] = {{.rounding = FE_TONEAREST},
                                     {.rounding = FE_UPWARD},
                                     {.rounding = FE_TOWARDZERO, .flush = true},
                                     {.rounding = FE_DOWNWARD, .flush = true}};
    pthread_t threads[4];
    double alone = 0;
    world_init(&world);
    check_int(train(NULL, &world, &alone), ==, 0);
    for (int i = 0; i < 4; i++) {
        world_init(&guests[i].world);
        check_int(pthread_create(&threads[i], NULL, be_guest, &guests[i]), ==, 0);
    }
    for (int i = 0; i < 4; i++) {
        check_int(pthread_join(threads[i], NULL), ==, 0);
        check_int(guests[i].rc, ==, 0);
        check_double(guests[i].loss, ==, alone);
        check_true(guests[i].kept);
        check_uint(guests[i].lines, >, 0);
    }
}

static void *step_once(void *argument)
{
    struct tide_engine *engine = argument;
    static struct tide_step step;
    step = (struct tide_step){.struct_bytes = sizeof step};
    return tide_engine_step(engine, &world.batch, 1, 1e-3, &step) == 0 ? &step : NULL;
}

static void *end_engine(void *engine)
{
    tide_engine_destroy(engine);
    return NULL;
}

/* Threads may use an engine one after the other. */
static void thread_after_thread(void)
{
    double alone = 0;
    void *step = NULL;
    pthread_t thread;
    world_init(&world);
    check_int(train(NULL, &world, &alone), ==, 0);
    struct tide_engine *engine = world_engine(&world.options);
    for (int s = 0; s < STEPS; s++) {
        check_int(pthread_create(&thread, NULL, step_once, engine), ==, 0);
        check_int(pthread_join(thread, &step), ==, 0);
        check_true(step != NULL);
    }
    check_double(((const struct tide_step *)step)->loss, ==, alone);
    check_int(pthread_create(&thread, NULL, end_engine, engine), ==, 0);
    check_int(pthread_join(thread, NULL), ==, 0);
}

static uint64_t blocked_of(const char *thread)
{
    char path[64];
    char line[256];
    unsigned long long blocked = 0;
    snprintf(path, sizeof path, "/proc/self/task/%.16s/status", thread);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        (void)sscanf(line, "SigBlk: %llx", &blocked);
    }
    if (file != NULL) {
        fclose(file);
    }
    return blocked;
}

/* Threads of the library block the application's signals, but not signals of faults. */
static void signals(void)
{
    static const int given[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD, SIGALRM};
    char own[16];
    unsigned threads = 0;
    world_init(&world);
    world.options.threads = 2;
    world.options.io = "threads";
    struct tide_engine *engine = world_engine(&world.options);
    DIR *tasks = opendir("/proc/self/task");
    check_true(tasks != NULL);
    snprintf(own, sizeof own, "%d", (int)getpid());
    for (const struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
        if (entry->d_name[0] == '.' || strcmp(entry->d_name, own) == 0) {
            continue;
        }
        const uint64_t blocked = blocked_of(entry->d_name);
        const bool faults = (blocked & UINT64_C(1) << (SIGSEGV - 1)) == 0;
        if (TEST_SLOW && (blocked == 0 || !faults)) {
            continue; /* a sanitizer's own thread */
        }
        for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
            check_true((blocked & UINT64_C(1) << (given[i] - 1)) != 0);
        }
        check_true(faults);
        threads++;
    }
    closedir(tasks);
    check_uint(threads, >=, 3);
    check_uint(blocked_of(own) & UINT64_C(1) << (SIGUSR1 - 1), ==, 0);
    tide_engine_destroy(engine);
}

static uint64_t hash_environment(void)
{
    uint64_t hash = 1469598103934665603U;
    for (char **entry = environ; *entry != NULL; entry++) {
        for (const char *at = *entry; *at != '\0'; at++) {
            hash = (hash ^ (unsigned char)*at) * 1099511628211U;
        }
    }
    return hash;
}

static void read_handlers(void (*out[32])(int))
{
    for (int s = 1; s < 32; s++) {
        struct sigaction action = {0};
        (void)sigaction(s, NULL, &action);
        out[s] = action.sa_handler;
    }
}

/* A run leaves the process's settings as they were and prints nothing. This case comes first,
 * because only the library's first use might change some of them. */
static void process(void)
{
    void (*before[32])(int) = {0};
    void (*after[32])(int) = {0};
    char folders[2][1024];
    double loss = 0;
    struct stat written = {0};
    world_init(&world);
    const char *path = test_file("output", "", 0);
    fflush(stdout);
    const int kept[2] = {dup(1), dup(2)};
    const int file = open(path, O_WRONLY | O_APPEND);
    check_true(file >= 0 && kept[0] >= 0 && kept[1] >= 0);
    const uint64_t environment = hash_environment();
    const mode_t mask = umask(022);
    read_handlers(before);
    check_true(getcwd(folders[0], sizeof folders[0]) != NULL);
    (void)dup2(file, 1);
    (void)dup2(file, 2);
    const int rc = train(NULL, &world, &loss);
    world.options.device_bytes = 1;
    const int refused = train(NULL, &world, &loss);
    fflush(stdout);
    (void)dup2(kept[0], 1);
    (void)dup2(kept[1], 2);
    read_handlers(after);
    check_int(rc, ==, 0);
    check_int(refused, ==, -EFBIG);
    check_int(fstat(file, &written), ==, 0);
    check_int(written.st_size, ==, 0);
    check_uint(hash_environment(), ==, environment);
    check_int(memcmp(before, after, sizeof before), ==, 0);
    check_uint(umask(mask), ==, 022);
    check_true(getcwd(folders[1], sizeof folders[1]) != NULL);
    check_string(folders[0], folders[1]);
    close(file);
    close(kept[0]);
    close(kept[1]);
}

/* Sets a decimal comma with a locale in glibc's compiled format, because the machine may have no
 * such locale. Skips the case if the locale cannot be loaded. */
static void use_comma(void)
{
    struct {
        uint32_t magic, count, at[6];
        char point[2], separator[1], grouping[1];
        uint32_t point_wide, separator_wide;
        char codeset[8];
    } numeric = {0x20031115 ^ LC_NUMERIC, 6, {0}, ",", "", "", ',', 0, "UTF-8"};
    const char *base = (const char *)&numeric;
    const char *const items[] = {numeric.point,
                                 numeric.separator,
                                 numeric.grouping,
                                 (const char *)&numeric.point_wide,
                                 (const char *)&numeric.separator_wide,
                                 numeric.codeset};
    char path[600];
    for (int i = 0; i < 6; i++) {
        numeric.at[i] = (uint32_t)(items[i] - base);
    }
    snprintf(path, sizeof path, "%s/comma", test_directory());
    check_true(mkdir(path, 0777) == 0 || errno == EEXIST);
    (void)test_file("comma/LC_NUMERIC", &numeric, sizeof numeric);
    check_int(setenv("LOCPATH", test_directory(), 1), ==, 0);
    char text[16] = "";
    if (setlocale(LC_NUMERIC, "comma") == NULL) {
        test_skip("this C library does not load a locale of this form");
    }
    snprintf(text, sizeof text, "%.1f", 0.5);
    check_string(text, "0,5");
}

/* Trains an adapter whose scale has a fraction, and exports its checkpoint to `exported`. */
static void export_adapter(const char *checkpoints, const char *exported)
{
    char path[1000];
    struct tide_engine_options options = world.options;
    options.lora_rank = 2;
    options.lora_alpha = 16.5;
    struct tide_engine *engine = world_engine(&options);
    (void)world_steps(&world, engine, 1);
    const struct tide_checkpoint_options saving = {.struct_bytes = sizeof saving,
                                                   .directory = checkpoints};
    check_int(tide_engine_checkpoint(engine, &saving), ==, 0);
    tide_engine_destroy(engine);
    snprintf(path, sizeof path, "%s/checkpoint-1", checkpoints);
    check_int(tide_checkpoint_export(NULL, path, exported, 0), ==, 0);
}

static void check_json(const char *path)
{
    struct core_json *doc = NULL;
    if (core_json_load(path, NULL, &doc) != 0) {
        test_fail(__FILE__, __LINE__, "%s", core_err_message());
    }
    core_json_destroy(doc);
}

static void check_alpha(const char *path, double alpha)
{
    struct core_json *doc = NULL;
    double found = 0;
    check_int(core_json_load(path, NULL, &doc), ==, 0);
    check_int(core_json_get_real(doc, core_json_root(doc), "lora_alpha", &found), ==, 0);
    check_double(found, ==, alpha);
    core_json_destroy(doc);
}

/* A decimal comma does not change files or results. */
static void comma(void)
{
    char rates[600];
    char trace[600];
    char folder[600];
    char path[700];
    char exported[600];
    double alone = 0;
    double loss = 0;
    world_init(&world);
    check_int(train(NULL, &world, &alone), ==, 0);
    snprintf(rates, sizeof rates, "%s/written.json", test_directory());
    snprintf(trace, sizeof trace, "%s/trace.json", test_directory());
    snprintf(folder, sizeof folder, "%s/checkpoints", test_directory());
    use_comma();
    check_int(train(NULL, &world, &loss), ==, 0);
    check_double(loss, ==, alone);
    struct tide_engine *engine = world_engine(&world.options);
    (void)world_steps(&world, engine, 1);
    check_int(tide_plan_rates(tide_engine_plan(engine), rates), ==, 0);
    check_int(tide_plan_trace(tide_engine_plan(engine), trace), ==, 0);
    const struct tide_checkpoint_options saving = {.struct_bytes = sizeof saving,
                                                   .directory = folder};
    check_int(tide_engine_checkpoint(engine, &saving), ==, 0);
    tide_engine_destroy(engine);
    snprintf(path, sizeof path, "%s/adapter_checkpoints", test_directory());
    snprintf(exported, sizeof exported, "%s/adapter", test_directory());
    export_adapter(path, exported);
    check_true(setlocale(LC_NUMERIC, "C") != NULL);
    snprintf(path, sizeof path, "%s/adapter_config.json", exported);
    check_alpha(path, 16.5);
    check_json(rates);
    check_json(trace);
    unsigned lines = 0;
    const struct tide_context_options options = {.struct_bytes = sizeof options,
                                                 .log_level = TIDE_LOG_WARN,
                                                 .log = count_line,
                                                 .user = &lines};
    struct tide_context *context = NULL;
    check_int(tide_context_create(&options, &context), ==, 0);
    world.options.rates = rates;
    world.options.resume = folder;
    engine = NULL;
    check_int(tide_engine_create(context, &world.options, &engine), ==, 0);
    check_double(world_steps(&world, engine, STEPS - 1).loss, ==, alone);
    tide_engine_destroy(engine);
    tide_context_destroy(context);
    check_uint(lines, ==, 0); /* the options are those of the checkpoint */
}

/* Another build of the library works in this process, like a plugin. */
static void two_libraries(void)
{
    char path[1024];
    const char *root = getenv("TIDE_BUILD_ROOT");
    struct tide_engine *engine = NULL;
    struct tide_engine *ours = NULL;
    struct tide_step step = {.struct_bytes = sizeof step};
    if (root == NULL) {
        test_skip("TIDE_BUILD_ROOT is not set: run it through meson test");
    }
    snprintf(path, sizeof path, "%s/tests/api/libtide_grown.so", root);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        test_fail(__FILE__, __LINE__, "%s", dlerror());
    }
#define FIND(name)                                                                                 \
    __typeof__(&name) their_##name = NULL;                                                         \
    void *found_##name = dlsym(library, #name);                                                    \
    memcpy(&their_##name, &found_##name, sizeof found_##name);                                     \
    check_true(their_##name != NULL && their_##name != name)
    FIND(tide_engine_create);
    FIND(tide_engine_destroy);
    FIND(tide_engine_step);
    FIND(tide_last_error);
    FIND(tide_device_count);
    world_init(&world);
    check_int(tide_device_count(NULL, "abacus"), ==, -EINVAL);
    check_int(their_tide_device_count(NULL, "slide rule"), ==, -EINVAL);
    check_contains(tide_last_error(), "abacus");
    check_contains(their_tide_last_error(), "slide rule");
    check_int(their_tide_engine_create(NULL, &world.options, &engine), ==, 0);
    check_int(tide_engine_create(NULL, &world.options, &ours), ==, 0);
    for (int s = 0; s < STEPS; s++) {
        double losses[2];
        check_int(their_tide_engine_step(engine, &world.batch, 1, 1e-3, &step), ==, 0);
        losses[0] = step.loss;
        check_int(tide_engine_step(ours, &world.batch, 1, 1e-3, &step), ==, 0);
        losses[1] = step.loss;
        check_double(losses[0], ==, losses[1]);
    }
    tide_engine_destroy(ours);
    their_tide_engine_destroy(engine);
}

TEST_MAIN({"process", process}, {"modes", modes}, {"thread_after_thread", thread_after_thread},
          {"signals", signals}, {"comma", comma}, {"two_libraries", two_libraries})
