/* test_place.c: memory and threads are placed on the NUMA nodes of described machines, without a
 * change of bits. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/topo_read.h"
#include "core/dev/dev.h"
#include "offload/plan/layout.h"
#include "offload/run/engine_internal.h"
#include "offload/run/memory.h"
#include "offload/run/place.h"
#include "tests/base/dgx.h"
#include "tests/base/machine.h"
#include "tests/harness/heard.h"
#include "tests/harness/test.h"
#include "tests/run/case.h"

/* ---- machines ---- */

/* Makes /proc and /sys of a machine whose nodes have these processors; returns the folder. A
 * node with "" has only memory. */
static const char *machine_of(const char *name, const char *const *cpus, unsigned nodes)
{
    char text[256];
    const char *root = machine_root(name);
    unsigned last = 0;
    for (unsigned n = 0; n < nodes; n++) {
        struct core_cpus set;
        snprintf(text, sizeof text, "%s\n", cpus[n]);
        dgx_put(root, text, "/sys/devices/system/node/node%u/cpulist", n);
        snprintf(text, sizeof text, "Node %u MemTotal: 134217728 kB\nNode %u MemFree: 1 kB\n", n,
                 n);
        dgx_put(root, text, "/sys/devices/system/node/node%u/meminfo", n);
        check_int(core_cpus_parse(cpus[n], &set), ==, 0);
        for (unsigned cpu = 0; cpu < CORE_CPUS_MAX; cpu++) {
            if (core_cpus_has(&set, cpu)) {
                snprintf(text, sizeof text, "%u\n", cpu);
                dgx_put(root, text, "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list",
                        cpu);
                last = cpu > last ? cpu : last;
            }
        }
    }
    snprintf(text, sizeof text, "0-%u\n", last);
    dgx_put(root, text, "/sys/devices/system/cpu/online");
    snprintf(text, sizeof text, "0-%u\n", nodes - 1);
    dgx_put(root, text, "/sys/devices/system/node/online");
    return root;
}

static struct core_topo *read_machine(const char *root)
{
    struct core_topo *topo = NULL;
    check_int(core_topo_create(CORE_TOPO_SYSFS, root, NULL, &topo), ==, 0);
    return topo;
}

static struct run_place decide(const struct core_topo *topo, const struct run_place_wish *wish)
{
    struct run_place place;
    check_int(run_place_decide(topo, wish, &place), ==, 0);
    return place;
}

/* Checks that members are divided among the nodes, and that chunks are in proportion to threads. */
static void check_shares(const struct run_place *place, unsigned threads)
{
    unsigned turns[RUN_PLACE_NODES_MAX] = {0};
    unsigned at = 0;
    for (uint32_t n = 0; n < place->node_count; n++) {
        check_uint(place->nodes[n].first, ==, at);
        check_uint(place->nodes[n].end, >, at);
        check_uint(core_cpus_count(&place->nodes[n].cpus), >, 0);
        at = place->nodes[n].end;
    }
    check_uint(at, ==, place->node_count > 0 ? threads : 0);
    for (uint32_t t = 0; t < place->turn_count; t++) {
        turns[run_place_of_chunk(place, t / 2, t - t / 2)]++;
    }
    for (uint32_t n = 0; n < place->node_count && threads <= RUN_PLACE_TURN_MAX; n++) {
        check_uint(turns[n], ==, place->nodes[n].end - place->nodes[n].first);
    }
}

static void check_cpus(const struct core_cpus *cpus, const char *expected)
{
    char text[256];
    core_cpus_print(cpus, text, sizeof text);
    check_string(text, expected);
}

/* With one node, nothing is placed. Two ranks use one socket each. */
static void sockets(void)
{
    static const char *const one[] = {"0-7"};
    static const char *const two[] = {"0-23", "24-47"};
    struct core_topo *topo = read_machine(machine_of("one", one, 1));
    check_uint(
        decide(topo, &(struct run_place_wish){.ranks = 1, .threads = 8, .card = -1}).node_count, ==,
        0);
    core_topo_destroy(topo);
    topo = read_machine(machine_of("two", two, 2));
    struct run_place place = decide(
        topo, &(struct run_place_wish){.ranks = 1, .threads = 48, .card = -1});
    check_uint(place.node_count, ==, 2);
    check_cpus(&place.cpus, "0-47");
    check_uint(place.nodes[0].end, ==, 24);
    check_shares(&place, 48);
    for (uint32_t rank = 0; rank < 2; rank++) {
        place = decide(
            topo, &(struct run_place_wish){.rank = rank, .ranks = 2, .threads = 24, .card = -1});
        check_uint(place.node_count, ==, 1);
        check_cpus(&place.cpus, two[rank]);
        check_shares(&place, 24);
    }
    place = decide(topo, &(struct run_place_wish){.ranks = 1, .threads = 1, .card = 1});
    check_uint(place.node_count, ==, 1);
    check_int(place.nodes[0].number, ==, 1);
    check_shares(&place, 1);
    check_int(run_place_decide(topo, &(struct run_place_wish){.ranks = 2000, .card = -1}, &place),
              ==, -EINVAL);
    check_contains(core_err_message(), "2000 ranks");
    core_topo_destroy(topo);
}

/* On a DGX-2 and a DGX H100, a rank runs on one socket. */
static void big_nodes(void)
{
    static const char *const dgx2[] = {"0-23", "24-47"};
    static const char *const h100[] = {"0-55", "56-111"};
    struct core_topo *topo = read_machine(machine_of("dgx2", dgx2, 2));
    for (uint32_t rank = 0; rank < 16; rank++) {
        const struct run_place place = decide(
            topo, &(struct run_place_wish){.rank = rank, .ranks = 16, .threads = 3, .card = -1});
        check_uint(place.node_count, ==, 1);
        check_int(place.nodes[0].number, ==, (int)(rank % 2));
        check_uint(core_cpus_count(&place.cpus), ==, 3);
        check_shares(&place, 3);
    }
    core_topo_destroy(topo);
    topo = read_machine(machine_of("h100", h100, 2));
    const struct run_place place = decide(
        topo, &(struct run_place_wish){.rank = 5, .ranks = 8, .threads = 14, .card = -1});
    check_int(place.nodes[0].number, ==, 1);
    check_uint(core_cpus_count(&place.cpus), ==, 14);
    core_topo_destroy(topo);
}

/* Chunks go to all nodes, a drive's thread runs beside its drive, and a rank begins with its
 * card's node. */
static void many_nodes(void)
{
    static const char *const drives[] = {"nvme2n1", NULL, "nvme0n1", "sdz"};
    struct core_topo *topo = read_machine(dgx_files("dgx"));
    const struct run_place_wish wish = {
        .ranks = 1, .threads = 32, .card = 3, .drives = drives, .drive_count = 4};
    const struct run_place place = decide(topo, &wish);
    check_uint(place.node_count, ==, 8);
    check_int(place.nodes[0].number, ==, 3);
    check_shares(&place, 32);
    check_cpus(&place.store_cpus[0], "24-27,56-59");
    check_uint(core_cpus_count(&place.store_cpus[1]), ==, 0);
    check_cpus(&place.store_cpus[2], "8-11,40-43");
    check_uint(core_cpus_count(&place.store_cpus[3]), ==, 0);
    for (unsigned threads = 1; threads < 40; threads++) {
        struct run_place_wish fewer = wish;
        fewer.threads = threads;
        const struct run_place some = decide(topo, &fewer);
        check_uint(some.node_count, ==, threads < 8 ? threads : 8);
        check_shares(&some, threads);
    }
    char text[2048];
    check_contains(run_place_print(&place, text, sizeof text),
                   "node 3 (4 threads on processors 12-15,44-47), node 4 (4 threads");
    check_uint(strlen(run_place_print(&place, text, 20)), ==, 19);
    core_topo_destroy(topo);
}

/* A node without processors (the GPU memory of a Grace-Hopper) gets no threads. Nodes with more
 * processors get more chunks. */
static void odd_nodes(void)
{
    static const char *const hopper[] = {"0-71", ""};
    static const char *const unequal[] = {"0-11", "12-15"};
    struct core_topo *topo = read_machine(machine_of("hopper", hopper, 2));
    struct run_place place = decide(topo,
                                    &(struct run_place_wish){.ranks = 1, .threads = 70, .card = 1});
    check_uint(place.node_count, ==, 1);
    check_cpus(&place.cpus, "0-71");
    check_shares(&place, 70);
    core_topo_destroy(topo);
    topo = read_machine(machine_of("unequal", unequal, 2));
    place = decide(topo, &(struct run_place_wish){.ranks = 1, .threads = 16, .card = -1});
    check_uint(place.nodes[0].end, ==, 12);
    check_shares(&place, 16);
    core_topo_destroy(topo);
}

/* ---- placement of a run ---- */

/* Describes this machine as one with two nodes; skips the case if there is one processor. */
static const char *split_machine(const char *name, char text[2][16])
{
    struct core_cpus allowed;
    const char *cpus[2] = {text[0], text[1]};
    check_int(core_cpus_allowed(&allowed), ==, 0);
    if (core_cpus_count(&allowed) < 2) {
        test_skip("one processor");
    }
    for (unsigned n = 0; n < 2; n++) {
        snprintf(text[n], 16, "%d", core_cpus_nth(&allowed, n));
    }
    return machine_of(name, cpus, 2);
}

/* Counts the update's threads that are bound to `cpus`. */
static unsigned count_threads(const char *cpus)
{
    unsigned count = 0;
    DIR *tasks = opendir("/proc/self/task");
    check_true(tasks != NULL);
    for (struct dirent *entry = readdir(tasks); entry != NULL; entry = readdir(tasks)) {
        char path[300];
        char line[256];
        char name[64] = "";
        snprintf(path, sizeof path, "/proc/self/task/%.200s/status", entry->d_name);
        FILE *file = fopen(path, "re");
        while (file != NULL && fgets(line, sizeof line, file) != NULL) {
            sscanf(line, "Name: %63s", name);
            char list[128];
            count += strncmp(name, "update", 6) == 0 &&
                     sscanf(line, "Cpus_allowed_list: %127s", list) == 1 && strcmp(list, cpus) == 0;
        }
        if (file != NULL) {
            fclose(file);
        }
    }
    closedir(tasks);
    return count;
}

/* The update's threads are bound to the nodes, unless `numa_off` is set. */
static void threads_are_bound(void)
{
    char cpus[2][16];
    struct case_model made;
    struct run_prepared *prepared = NULL;
    struct run_engine *engine = NULL;
    struct run_options options = case_options();
    options.topology = split_machine("bound", cpus);
    options.threads = 5;
    case_model_make(&made, "llama");
    check_int(run_prepared_create(made.model, &options, case_rates(), &prepared), ==, 0);
    const struct run_engine_options engine_options = {
        .prepared = prepared, .options = &options, .model = made.model, .files = made.files};
    check_int(run_engine_create(&engine_options, &engine), ==, 0);
    /* First node: the queue and 1 member of the team of all threads, the queue and 1 member of
     * the node's team. Second node: 3 members of the first team, the queue and 2 members of the
     * node's team. */
    check_uint(count_threads(cpus[0]), ==, 2 + 2);
    check_uint(count_threads(cpus[1]), ==, 3 + 3);
    run_engine_destroy(engine);
    options.numa_off = true;
    check_int(run_engine_create(&engine_options, &engine), ==, 0);
    check_uint(count_threads(cpus[0]) + count_threads(cpus[1]), ==, 0);
    run_engine_destroy(engine);
    run_prepared_destroy(prepared);
    case_model_free(&made);
}

/* Runs have the same bits on two nodes as on one. */
static void same_bits(void)
{
    static const struct {
        const char *name;
        enum plan_where states;
        enum plan_timing timing;
        uint32_t world;
    } ways[] = {
        {"states in HOST", PLAN_WHERE_HOST, PLAN_TIMING_DEFERRED, 1},
        {"states in STORE", PLAN_WHERE_STORE, PLAN_TIMING_DEFERRED, 1},
        {"updates in backward", PLAN_WHERE_HOST, PLAN_TIMING_INSIDE, 1},
        {"speculation", PLAN_WHERE_HOST, PLAN_TIMING_SPECULATIVE, 1},
        {"two ranks", PLAN_WHERE_HOST, PLAN_TIMING_AUTO, 2},
    };
    enum { STEPS = 3 };
    char cpus[2][16];
    const char *topology = split_machine("bits", cpus);
    struct case_model made;
    case_model_make(&made, "llama");
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        struct case_outcome whole;
        struct case_outcome placed;
        struct run_options options = case_options();
        options.wishes.states = ways[w].states;
        options.wishes.timing = ways[w].timing;
        options.wishes.chunk_elements = 64 << 10;
        options.clip = ways[w].timing == PLAN_TIMING_INSIDE ? 0 : options.clip;
        options.world = options.local = ways[w].world;
        options.stage = ways[w].world > 1 ? 1 : 0;
        case_store(&options, "mem");
        case_run_engine(&made, &options, STEPS, &whole);
        options.topology = topology;
        case_run_engine(&made, &options, STEPS, &placed);
        case_check_equal(&whole, &placed, ways[w].name);
    }
    case_model_free(&made);
}

/* ---- the parts of the HOST tier ---- */

/* whether qsort() gets its elements in reverse order; a stable sort then reverses equal elements */
static bool reverses;
void __real_qsort(void *base, size_t count, size_t bytes,
                  int (*compare)(const void *, const void *));
void __wrap_qsort(void *base, size_t count, size_t bytes,
                  int (*compare)(const void *, const void *));

void __wrap_qsort(void *base, size_t count, size_t bytes,
                  int (*compare)(const void *, const void *))
{
    char *const elements = base;
    for (size_t i = 0; reverses && i < count / 2; i++) {
        for (size_t b = 0; b < bytes; b++) {
            char *left = &elements[i * bytes + b];
            char *right = &elements[(count - 1 - i) * bytes + b];
            const char byte = *left;
            *left = *right;
            *right = byte;
        }
    }
    __real_qsort(base, count, bytes, compare);
}

/* of the last region that had any */
static struct core_region_part parts[1024];
static size_t part_count;
int __real_core_region_alloc(const struct core_region_options *options, struct core_region *out);
int __wrap_core_region_alloc(const struct core_region_options *options, struct core_region *out);

int __wrap_core_region_alloc(const struct core_region_options *options, struct core_region *out)
{
    if (options->parts != NULL) {
        check_uint(options->part_count, <=, sizeof parts / sizeof parts[0]);
        part_count = options->part_count;
        memcpy(parts, options->parts, part_count * sizeof *parts);
    }
    return __real_core_region_alloc(options, out);
}

/* Checks the nodes of chunks in HOST. Returns how many chunks begin where a stripe of another
 * node begins. */
static unsigned check_chunks(const struct run_prepared *prepared, const struct run_place *place)
{
    const struct plan_layout *layout = plan_layout_of(prepared->plan);
    unsigned ties = 0;
    for (uint32_t b = 0; b < prepared->input.block_count; b++) {
        for (uint32_t c = 0; c < layout->places[b].chunk_count; c++) {
            const struct plan_piece kept =
                plan_chunk_at(&prepared->input, layout, PLAN_MASTER, b, c).kept;
            const struct plan_buffer *buffer = kept.buffer != PLAN_NONE
                                                   ? plan_buffer(prepared->plan, kept.buffer)
                                                   : NULL;
            if (buffer == NULL || buffer->tier != PLAN_HOST) {
                continue;
            }
            const uint64_t begin = buffer->offset + kept.offset;
            const unsigned first = place->nodes[run_place_of_chunk(place, b, c)].first;
            size_t i = part_count;
            while (i > 0 && parts[i - 1].begin > begin) {
                i--;
            }
            check_uint(i, >, 0);
            check_uint(parts[i - 1].begin, ==, begin);
            check_uint(parts[i - 1].first, ==, first);
            ties += i > 1 && parts[i - 2].begin == begin && parts[i - 2].first != first;
        }
    }
    return ties;
}

/* A chunk at the start of its buffer is on the chunk's node, not on the stripe's, even if
 * qsort() reorders equal elements. */
static void chunks_are_on_their_nodes(void)
{
    char cpus[2][16];
    struct case_model made;
    struct run_prepared *prepared = NULL;
    struct dev_device *device = NULL;
    struct run_memory memory;
    struct run_place place;
    struct run_options options = case_options();
    options.topology = split_machine("parts", cpus);
    options.threads = 4;
    options.wishes.states = PLAN_WHERE_HOST;
    options.wishes.chunk_elements = 64 << 10;
    case_model_make(&made, "llama");
    check_int(run_prepared_create(made.model, &options, case_rates(), &prepared), ==, 0);
    run_place_create(&options, NULL, -1, &place);
    check_uint(place.node_count, ==, 2);
    const struct dev_options bytes = {.memory_bytes = plan_tier_bytes(prepared->plan, PLAN_DEVICE) +
                                                      RUN_MEMORY_SPARE_BYTES};
    check_int(dev_open("cpu", &bytes, &device), ==, 0);
    const struct run_memory_options wanted = {
        .plan = prepared->plan, .input = &prepared->input, .device = device, .place = &place};
    for (int way = 0; way < 2; way++) {
        reverses = way == 1;
        part_count = 0;
        check_int(run_memory_init(&memory, &wanted), ==, 0);
        check_uint(check_chunks(prepared, &place), >, 0);
        run_memory_fini(&memory);
    }
    reverses = false;
    dev_close(device);
    run_prepared_destroy(prepared);
    case_model_free(&made);
}

/* If ranks cannot be placed, a warning says so. */
static void too_many_ranks(void)
{
    struct run_place place;
    const struct run_options options = {.topology = dgx_files("full"), .threads = 2, .local = 2000};
    test_listen(CORE_LOG_WARN);
    run_place_create(&options, NULL, -1, &place);
    test_listen_end();
    check_uint(place.node_count, ==, 0);
    check_uint(test_heard_lines("2000 ranks"), ==, 1);
    check_uint(test_heard_lines("are not placed on NUMA nodes"), ==, 1);
}

TEST_MAIN({"sockets", sockets}, {"big_nodes", big_nodes}, {"many_nodes", many_nodes},
          {"odd_nodes", odd_nodes}, {"threads_are_bound", threads_are_bound},
          {"same_bits", same_bits}, {"chunks_are_on_their_nodes", chunks_are_on_their_nodes},
          {"too_many_ranks", too_many_ranks})
