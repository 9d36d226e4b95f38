/* memory.c: size and speed of usable host memory. Owns two buffers and a team while it measures. */
#include <string.h>
#include <unistd.h>

#include "core/base/caches.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/mem.h"
#include "core/base/mem_limits.h"
#include "core/base/sysfile.h"
#include "core/base/team.h"
#include "offload/doctor/doctor.h"

static const char topic[] = "memory";

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

const char doctor_threads_cure[] = "ulimit -u unlimited, or docker run --pids-limit=-1 ...";

enum { ROUNDS_MIN = 3, ROUNDS_MAX = 64 };

static void say_size(struct doctor *doctor, const struct core_mem_limits *limits)
{
    char total[DOCTOR_SIZE_BYTES];
    char usable[DOCTOR_SIZE_BYTES];
    char group[DOCTOR_SIZE_BYTES];
    doctor_size(limits->total_bytes, total);
    doctor_size(limits->usable_bytes, usable);
    bool small = limits->usable_bytes < 2 * GIB;
    struct doctor_line line = {.verdict = small ? TIDE_WARN : TIDE_OK,
                               .topic = topic,
                               .cure = small ? "end other programs, or raise the limit (docker run "
                                               "--memory=..., systemd: MemoryMax=)"
                                             : NULL,
                               .figure = "usable_bytes",
                               .value = (double)limits->usable_bytes};
    if (limits->cgroup_bytes < limits->total_bytes) {
        doctor_say(doctor, &line, "%s usable of %s; the cgroup's limit is %s", usable, total,
                   doctor_size(limits->cgroup_bytes, group));
    } else {
        doctor_say(doctor, &line, "%s usable of %s", usable, total);
    }
}

static void say_overcommit(struct doctor *doctor)
{
    int64_t policy = 0;
    if (core_sysfile_number(&policy, doctor->root, "/proc/sys/vm/overcommit_memory") == 0 &&
        policy == 2) {
        doctor_say(doctor,
                   &(struct doctor_line){.verdict = TIDE_WARN,
                                         .topic = topic,
                                         .cure = "sudo sysctl vm.overcommit_memory=0"},
                   "vm.overcommit_memory is 2: large mappings are refused before memory is full");
    }
}

struct pass {
    const uint64_t *from;
    uint64_t *to;
    uint64_t words;
    _Atomic uint64_t sum; /* keeps the reads alive; relaxed */
};

static void copy_part(void *argument, unsigned index, unsigned count)
{
    struct pass *pass = argument;
    uint64_t begin;
    uint64_t end;
    core_team_share(pass->words, 512, index, count, &begin, &end);
    memcpy(pass->to + begin, pass->from + begin, (end - begin) * sizeof *pass->to);
}

static void read_part(void *argument, unsigned index, unsigned count)
{
    struct pass *pass = argument;
    uint64_t begin;
    uint64_t end;
    uint64_t sum = 0;
    core_team_share(pass->words, 512, index, count, &begin, &end);
    for (uint64_t i = begin; i < end; i++) {
        sum += pass->from[i];
    }
    atomic_fetch_add_explicit(&pass->sum, sum, memory_order_relaxed);
}

static double best_rate(struct core_team *team, core_team_part *part, struct pass *pass,
                        uint64_t bytes, int64_t limit_ns)
{
    int64_t best = INT64_MAX;
    int64_t began = core_clock_now_ns();
    for (int i = 0; i < ROUNDS_MAX; i++) {
        int64_t start = core_clock_now_ns();
        core_team_run(team, part, pass);
        int64_t end = core_clock_now_ns();
        best = end - start < best ? end - start : best;
        if (i + 1 >= ROUNDS_MIN && end - began > limit_ns) {
            break;
        }
    }
    return (double)bytes * 1e9 / (double)(best > 0 ? best : 1);
}

/* Exceeds the last-level caches, if limits allow, to measure the memory. */
static uint64_t buffer_bytes(const struct doctor *doctor, const struct core_mem_limits *limits)
{
    struct core_cpus cpus;
    const uint64_t cache = core_cpus_allowed(&cpus) == 0 ? core_caches_bytes(&cpus, "") : 0;
    uint64_t bytes = 128 * MIB > 2 * cache ? 128 * MIB : 2 * cache;
    bytes = bytes < doctor->memory_bytes ? bytes : doctor->memory_bytes;
    return bytes < limits->usable_bytes / 8 ? bytes : limits->usable_bytes / 8;
}

static void measure(struct doctor *doctor, struct core_team *team, uint64_t bytes)
{
    struct core_region from = {0};
    struct core_region to = {0};
    struct core_region_options options = {
        .name = "doctor", .bytes = bytes, .pages = CORE_PAGES_THP, .team = team};
    int rc = core_region_alloc(&options, &from);
    if (rc == 0) {
        rc = core_region_alloc(&options, &to);
    }
    if (rc == 0) {
        struct pass pass = {.from = (const uint64_t *)(const void *)from.base,
                            .to = (uint64_t *)(void *)to.base,
                            .words = bytes / sizeof(uint64_t)};
        double read = best_rate(team, read_part, &pass, bytes, doctor->memory_ns);
        double copy = best_rate(team, copy_part, &pass, 2 * bytes, doctor->memory_ns);
        doctor_say(
            doctor,
            &(struct doctor_line){.topic = topic, .figure = "copy_bytes_per_second", .value = copy},
            "%.1f GB/s read, %.1f GB/s copied (read and written), %u thread%s", read / 1e9,
            copy / 1e9, core_team_count(team), core_team_count(team) == 1 ? "" : "s");
    } else {
        doctor_say(doctor,
                   &(struct doctor_line){.verdict = TIDE_WARN,
                                         .topic = topic,
                                         .cure = "end other programs, or raise the limit"},
                   "not measured: %s", core_err_message());
    }
    core_region_free(&to);
    core_region_free(&from);
}

static void say_rate(struct doctor *doctor, const struct core_mem_limits *limits)
{
    uint64_t bytes = buffer_bytes(doctor, limits) / MIB * MIB;
    if (bytes < 8 * MIB) {
        doctor_say(doctor,
                   &(struct doctor_line){.verdict = TIDE_WARN,
                                         .topic = topic,
                                         .cure = "end other programs, or raise the limit"},
                   "too little memory is usable to measure its speed");
        return;
    }
    double quota = doctor_cpu_quota(doctor->root);
    struct core_team_options options = {.name = "doctor",
                                        .count = quota > 0.0 ? (unsigned)quota + 1 : 0};
    struct core_team *team = NULL;
    if (core_team_create(&options, &team) != 0) {
        doctor_say(doctor,
                   &(struct doctor_line){
                       .verdict = TIDE_FAIL, .topic = topic, .cure = doctor_threads_cure},
                   "no threads can be started: %s", core_err_message());
        return;
    }
    measure(doctor, team, bytes);
    core_team_destroy(team);
}

void doctor_memory(struct doctor *doctor)
{
    struct core_mem_limits limits;
    if (core_mem_limits(doctor->root, &limits) != 0) {
        doctor_say(doctor,
                   &(struct doctor_line){.verdict = TIDE_WARN,
                                         .topic = topic,
                                         .cure = "sudo mount -t proc proc /proc"},
                   "the size of memory cannot be read: %s", core_err_message());
        limits = (struct core_mem_limits){.usable_bytes = 2 * GIB};
    } else {
        say_size(doctor, &limits);
        say_overcommit(doctor);
    }
    say_rate(doctor, &limits);
}
