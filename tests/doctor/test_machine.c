/* Tests findings about machines: real, made of files, or restricted. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/doctor/hear.h"
#include "tests/harness/child.h"
#include "tests/harness/test.h"

static void count_finding(void *user, const struct tide_finding *finding)
{
    int *counts = user;
    counts[finding->verdict]++;
}

/* All topics are reported, and each problem has a cure. */
static void this_machine(void)
{
    static const char *const topics[] = {" cpu ", " memory ", " numa ",    " pages ", " memlock ",
                                         " io ",  " gpu ",    " library ", " store "};
    int counts[3] = {0};
    const char *stores[] = {test_directory()};
    struct tide_doctor_options options = {.struct_bytes = sizeof options,
                                          .stores = stores,
                                          .store_count = 1,
                                          .finding = count_finding,
                                          .user = counts};
    int worst = tide_doctor(NULL, &options);
    check_int(worst, >=, TIDE_OK);
    check_int(counts[worst], >, 0);
    check_int(counts[TIDE_OK], >, 5);
    const char *text = hear("", stores[0], NULL);
    for (size_t i = 0; i < sizeof topics / sizeof topics[0]; i++) {
        check_contains(text, topics[i]);
    }
    check_contains(text, "{copy_bytes_per_second ");
    check_cures(text);
}

/* Invalid options are refused without findings. */
static void bad_options(void)
{
    int counts[3] = {0};
    struct tide_doctor_options options = {.struct_bytes = sizeof options};
    check_int(tide_doctor(NULL, NULL), ==, -EINVAL);
    check_int(tide_doctor(NULL, &options), ==, -EINVAL);
    check_contains(tide_last_error(), "finding");
    options.finding = count_finding;
    options.user = counts;
    options.store_count = 1;
    check_int(tide_doctor(NULL, &options), ==, -EINVAL);
    const char *stores[] = {NULL};
    options.stores = stores;
    check_int(tide_doctor(NULL, &options), ==, -EINVAL);
    check_contains(tide_last_error(), "store 0");
    options.struct_bytes = 3;
    check_int(tide_doctor(NULL, &options), ==, -EINVAL);
    check_int(counts[0] + counts[1] + counts[2], ==, 0);
}

/* Without /proc and /sys, the doctor says what it cannot read, and continues. */
static void no_proc_and_no_sys(void)
{
    static const char *const none[][2] = {{"/empty", ""}, {NULL, NULL}};
    const char *text = hear(machine("bare", none), test_directory(), NULL);
    check_contains(text, "warn memory : the size of memory cannot be read");
    check_contains(text, "mount -t proc");
    check_contains(text, "ok numa : one node");
    check_contains(text, "the PCI bus cannot be read");
    check_contains(text, " library ");
    check_contains(text, "{read_bytes_per_second ");
    check_cures(text);
}

/* Bad settings have findings with cures. */
static void a_badly_set_machine(void)
{
    static const char *const files[][2] = {
        {"/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 1048576 kB\n"},
        {"/proc/self/cgroup", "0::/box/inner\n"},
        {"/proc/sys/vm/overcommit_memory", "2\n"},
        {"/proc/sys/kernel/numa_balancing", "1\n"},
        {"/proc/sys/fs/aio-nr", "65530\n"},
        {"/proc/sys/fs/aio-max-nr", "65536\n"},
        {"/sys/fs/cgroup/box/cpu.max", "50000 100000\n"},
        {"/sys/fs/cgroup/box/inner/cpu.max", "max 100000\n"},
        {"/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"},
        {"/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "acpi-cpufreq\n"},
        {"/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n"},
        {"/sys/devices/system/node/has_memory", "0-1\n"},
        {"/sys/devices/system/node/online", "0-1\n"},
        {"/sys/devices/system/cpu/online", "0-1\n"},
        {"/sys/devices/system/node/node0/cpulist", "0\n"},
        {"/sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 8388608 kB\n"},
        {"/sys/devices/system/node/node1/cpulist", "1\n"},
        {"/sys/devices/system/node/node1/meminfo", "Node 1 MemTotal: 8388608 kB\n"},
        {NULL, NULL},
    };
    const char *root = machine("bad", files);
    check_double(doctor_cpu_quota(root), ==, 0.5);
    const char *text = hear(root, NULL, NULL);
    check_contains(text, "warn cpu : the cgroup's quota allows the time of 0.5 of ");
    check_contains(text,
                   "keeps the lowest frequency => sudo cpupower frequency-set -g performance");
    check_contains(text, "warn memory : 1.0 GiB usable of 16.0 GiB");
    check_contains(text, "=> sudo sysctl vm.overcommit_memory=0");
    check_contains(text, "warn pages : transparent huge pages: never");
    check_contains(text, "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled");
    check_contains(text,
                   "65530 of the machine's 65536 requests are in use => sudo sysctl fs.aio-max");
    check_contains(text,
                   "chunks of the optimizer take turns on node 0 with processors 0, node 1 with "
                   "processors 1");
    check_contains(text, "=> sudo sysctl kernel.numa_balancing=0");
    check_cures(text);
}

/* "powersave" is slow with a driver that does not raise the clock itself. */
static void clocks(void)
{
    static const struct {
        const char *driver;
        bool slow;
    } cases[] = {{"intel_pstate", false},
                 {"intel_cpufreq", true},
                 {"amd-pstate-epp", false},
                 {"amd-pstate", true},
                 {"acpi-cpufreq", true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *const files[][2] = {
            {"/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"},
            {"/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", cases[i].driver},
            {NULL, NULL},
        };
        char said[64];
        snprintf(said, sizeof said, "%s cpu : clock: powersave with %s",
                 cases[i].slow ? "warn" : "ok", cases[i].driver);
        check_contains(hear(machine(cases[i].driver, files), NULL, NULL), said);
    }
}

/* Good settings have the verdict ok. */
static void a_well_set_machine(void)
{
    static const char *const files[][2] = {
        {"/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 15728640 kB\n"},
        {"/proc/self/cgroup", "5:cpu,cpuacct:/job\n4:memory:/job\n0::/\n"},
        {"/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n"},
        {"/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n"},
        {"/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"},
        {"/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "amd-pstate-epp\n"},
        {"/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n"},
        {"/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "4096\n"},
        {"/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "2048\n"},
        {"/sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", "0\n"},
        {NULL, NULL},
    };
    const char *root = machine("good", files);
    check_double(doctor_cpu_quota(root), ==, 0.0);
    const char *text = hear(root, NULL, NULL);
    check_contains(text, "without a quota");
    check_contains(text, "ok cpu : clock: powersave with amd-pstate-epp");
    check_contains(text, "ok memory : 15.0 GiB usable of 16.0 GiB");
    check_contains(text, "ok pages : 4.0 GiB of 8.0 GiB reserved in 2 MiB pages are free");
    check_contains(text, "ok pages : transparent huge pages: never");
    check_cures(text);
}

/* A small limit of a cgroup is reported, and the doctor continues. */
static void a_small_cgroup(void)
{
    static const char *const files[][2] = {
        {"/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n"},
        {"/proc/self/cgroup", "0::/box\n"},
        {"/sys/fs/cgroup/box/memory.max", "16777216\n"},
        {"/sys/fs/cgroup/box/memory.current", "1048576\n"},
        {NULL, NULL},
    };
    const char *text = hear(machine("box", files), NULL, NULL);
    check_contains(text,
                   "warn memory : 15.0 MiB usable of 16.0 GiB; the cgroup's limit is 16.0 MiB "
                   "=> end other programs, or raise the limit (docker run --memory=");
    check_contains(text, "warn memory : too little memory is usable to measure its speed => ");
    check_true(strstr(text, "copy_bytes_per_second") == NULL);
    check_contains(text, " library ");
    check_cures(text);
}

/* The limit is below the measured buffers. With one processor, no other thread needs a stack. */
static int limit_address_space(void)
{
    cpu_set_t cpus;
    size_t first = 0;
    const struct rlimit limit = {16 << 20, 16 << 20};
    if (sched_getaffinity(0, sizeof cpus, &cpus) != 0) {
        return -1;
    }
    while (!CPU_ISSET(first, &cpus)) {
        first++;
    }
    CPU_ZERO(&cpus);
    CPU_SET(first, &cpus);
    return sched_setaffinity(0, sizeof cpus, &cpus) | setrlimit(RLIMIT_AS, &limit);
}

static int limit_threads(void)
{
    cpu_set_t cpus;
    const struct rlimit none = {0, 0};
    if (sched_getaffinity(0, sizeof cpus, &cpus) != 0 || CPU_COUNT(&cpus) < 2) {
        return -1;
    }
    return setrlimit(RLIMIT_NPROC, &none) | setresgid(65534, 65534, 65534) |
           setresuid(65534, 65534, 65534);
}

/* A process that may not start a thread or map memory gets a finding with a cure. */
static void limits_of_the_process(void)
{
    if (TEST_SLOW) {
        test_skip("a sanitizer needs its own address space");
    }
    const char *text = hear("", NULL, limit_address_space);
    check_contains(text, "warn memory : not measured: ");
    check_contains(text, "=> end other programs, or raise the limit");
    check_contains(text, " library ");
    if (geteuid() != 0) {
        test_skip("only root can become somebody else");
    }
    text = hear("", NULL, limit_threads);
    check_contains(text, "FAIL memory : no threads can be started: ");
    check_contains(text, "=> ulimit -u unlimited, or docker run --pids-limit=-1");
    check_cures(text);
}

/* A v1 quota is found in the parent of the process's group. */
static void an_old_quota(void)
{
    static const char *const files[][2] = {
        {"/proc/self/cgroup", "5:cpu,cpuacct:/job/step\n"},
        {"/sys/fs/cgroup/cpu/job/step/cpu.cfs_quota_us", "400000\n"},
        {"/sys/fs/cgroup/cpu/job/step/cpu.cfs_period_us", "100000\n"},
        {"/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "150000\n"},
        {"/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n"},
        {NULL, NULL},
    };
    check_double(doctor_cpu_quota(machine("old", files)), ==, 1.5);
}

/* A card without a driver has another finding than a missing card. */
static void a_card_without_a_driver(void)
{
    static const char *const card[][2] = {
        {"/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n"},
        {"/sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n"},
        {"/sys/bus/pci/devices/0000:01:00.1/vendor", "0x10de\n"},
        {"/sys/bus/pci/devices/0000:01:00.1/class", "0x040300\n"}, /* a sound device */
        {NULL, NULL},
    };
    static const char *const none[][2] = {
        {"/sys/bus/pci/devices/0000:01:00.0/vendor", "0x8086\n"},
        {"/sys/bus/pci/devices/0000:01:00.0/class", "0x030000\n"},
        {NULL, NULL},
    };
    struct doctor doctor = hear_alone(machine("none", none));
    doctor_gpu(&doctor);
    if (strstr(heard_text(), "CUDA device") != NULL) {
        test_skip("a card works here");
    }
    check_contains(heard_text(), "ok gpu : no NVIDIA card was found;");
    doctor = hear_alone(machine("card", card));
    doctor_gpu(&doctor);
    check_contains(heard_text(), "warn gpu : a card was found, but it cannot be used: ");
    check_cures(heard_text());
}

static int forbid_with_eperm(void)
{
    return test_child_refuse_uring(EPERM, false);
}

static int forbid_with_enosys(void)
{
    return test_child_refuse_uring(ENOSYS, false);
}

/* If a container's filter refuses io_uring, the finding has a cure. */
static void seccomp_without_uring(void)
{
    const char *text = hear("", NULL, forbid_with_eperm);
    bool built = strstr(text, "built without liburing") == NULL;
    const char *cure = built ? "=> docker run --security-opt seccomp=unconfined"
                             : "=> sudo apt-get install liburing-dev, then build again";
    check_contains(text, "warn io io_uring: ");
    check_contains(text, cure);
    check_contains(text, "ok io choice: ");
    check_cures(text);
    text = hear("", NULL, forbid_with_enosys);
    check_contains(text, "warn io io_uring: ");
    check_contains(text, cure);
    check_cures(text);
}

static int forbid_with_enomem(void)
{
    return test_child_refuse_uring(ENOMEM, false);
}

static int forbid_with_emfile(void)
{
    return test_child_refuse_uring(EMFILE, false);
}

static int forbid_with_einval(void)
{
    return test_child_refuse_uring(EINVAL, false);
}

/* The cure for a refused io_uring depends on the reason. */
static void uring_refused_for_limits(void)
{
    static const struct {
        int (*forbid)(void);
        const char *cure;
    } rows[] = {{forbid_with_enomem, NULL},
                {forbid_with_emfile, "=> ulimit -n 65536"},
                {forbid_with_einval, "=> use Linux 5.15 or later"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char cure[300];
        const char *text = hear("", NULL, rows[i].forbid);
        if (strstr(text, "built without liburing") != NULL) {
            test_skip("built without liburing");
        }
        snprintf(cure, sizeof cure, "=> %s", doctor_memlock_cure());
        const char *line = strstr(text, "warn io io_uring: does not work (");
        check_true(line != NULL);
        check_contains(line, rows[i].cure != NULL ? rows[i].cure : cure);
        check_contains(text, "ok io choice: ");
        check_cures(text);
    }
}

/* If io_uring is switched off in the kernel, the finding has a cure. */
static void uring_switched_off(void)
{
    static const char *const files[][2] = {{"/proc/sys/kernel/io_uring_disabled", "2\n"},
                                           {NULL, NULL}};
    const char *text = hear(machine("switched", files), NULL, forbid_with_eperm);
    bool built = strstr(text, "built without liburing") == NULL;
    check_contains(text, built ? "=> sudo sysctl kernel.io_uring_disabled=0" : "liburing-dev");
}

static int become_nobody(void)
{
    struct rlimit small = {65536, 65536};
    return setrlimit(RLIMIT_MEMLOCK, &small) | setresgid(65534, 65534, 65534) |
           setresuid(65534, 65534, 65534);
}

/* A small memlock limit of a process without privileges has a cure. */
static void unprivileged(void)
{
    if (geteuid() != 0) {
        test_skip("only root can become somebody else");
    }
    const char *text = hear("", "/", become_nobody);
    check_contains(text, "warn memlock : only 64.0 KiB may be locked");
    check_contains(text, "/etc/security/limits.d/memlock.conf");
    check_contains(
        text, "FAIL store /: it cannot be written to: Permission denied => sudo install -d -o");
    check_cures(text);
}

static int lower_memlock(void)
{
    struct rlimit limit = {0, 8 << 20};
    return setrlimit(RLIMIT_MEMLOCK, &limit) | setresuid(65534, 65534, 65534);
}

/* If the hard limit is higher, the cure is a shell command. */
static void memlock_below_its_hard_limit(void)
{
    if (geteuid() != 0) {
        test_skip("only root can become somebody else");
    }
    const char *text = hear("", NULL, lower_memlock);
    check_contains(text, "warn memlock : only 0 B may be locked");
    check_contains(text, "=> ulimit -l $(ulimit -Hl)");
}

static void sizes(void)
{
    char text[DOCTOR_SIZE_BYTES];
    check_string(doctor_size(0, text), "0 B");
    check_string(doctor_size(1023, text), "1023 B");
    check_string(doctor_size(1536, text), "1.5 KiB");
    check_string(doctor_size(UINT64_C(250) << 30, text), "250 GiB");
    check_string(doctor_size(UINT64_MAX, text), "16384 PiB");
}

/* The time for measuring does not grow with the number of stores. */
static void time_is_shared(void)
{
    struct doctor doctor;
    doctor_init(&doctor, 1);
    check_int(doctor.store_ns + 2 * doctor.memory_ns, <, INT64_C(3000000000));
    doctor_init(&doctor, 30);
    check_int(30 * doctor.store_ns, <=, INT64_C(3000000000));
    check_int(doctor.store_ns, >, 0);
}

/* The worst verdict is kept; missing fields become empty strings. */
static void saying(void)
{
    struct doctor doctor = hear_alone("");
    doctor_say(&doctor, &(struct doctor_line){.verdict = TIDE_WARN, .topic = "t"}, "a%d", 1);
    doctor_say(&doctor, &(struct doctor_line){.topic = "t", .subject = "s", .cure = "c"}, "b");
    check_int(doctor.worst, ==, TIDE_WARN);
    check_string(heard_text(), "warn t : a1 =>  { 0}\nok t s: b => c { 0}\n");
}

TEST_MAIN({"this_machine", this_machine}, {"bad_options", bad_options},
          {"no_proc_and_no_sys", no_proc_and_no_sys}, {"a_badly_set_machine", a_badly_set_machine},
          {"clocks", clocks}, {"a_well_set_machine", a_well_set_machine},
          {"an_old_quota", an_old_quota}, {"a_card_without_a_driver", a_card_without_a_driver},
          {"seccomp_without_uring", seccomp_without_uring},
          {"uring_refused_for_limits", uring_refused_for_limits},
          {"a_small_cgroup", a_small_cgroup}, {"limits_of_the_process", limits_of_the_process},
          {"uring_switched_off", uring_switched_off}, {"unprivileged", unprivileged},
          {"memlock_below_its_hard_limit", memlock_below_its_hard_limit}, {"sizes", sizes},
          {"saying", saying}, {"time_is_shared", time_is_shared})
