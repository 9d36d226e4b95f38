/* Tests descriptions of machines, mostly invented ones, and the placement of ranks. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/caches.h"
#include "core/base/err.h"
#include "core/base/topo_read.h"
#include "tests/base/dgx.h"
#include "tests/base/machine.h"
#include "tests/harness/test.h"

#define GIB (UINT64_C(1) << 30)

/* ---- reading ---- */

static void check_is_dgx(const struct core_topo *topo)
{
    char text[64];
    check_int(core_topo_check(topo), ==, 0);
    check_int(topo->node_count, ==, NODES);
    check_int(topo->core_count, ==, NODES * CORES);
    check_int(core_cpus_count(&topo->cpus), ==, 64);
    check_int(topo->core_of[5], ==, topo->core_of[37]);
    check_uint(topo->nodes[3].bytes, ==, 128 * GIB);
    core_cpus_print(&topo->nodes[3].cpus, text, sizeof text);
    check_string(text, "12-15,44-47");
    check_int(topo->device_count, ==, GPUS + DRIVES);
    for (int i = 0; i < GPUS; i++) {
        const struct core_topo_device *gpu = core_topo_device_find(topo, gpu_bus[i]);
        check_true(gpu != NULL && gpu->kind == CORE_TOPO_GPU);
        check_int(gpu->node, ==, gpu_node[i]);
    }
    for (int i = 0; i < DRIVES; i++) {
        char name[16];
        snprintf(name, sizeof name, "nvme%dn1", i);
        const struct core_topo_device *drive = core_topo_device_find(topo, name);
        check_true(drive != NULL && drive->kind == CORE_TOPO_DRIVE);
        check_int(drive->node, ==, drive_node[i]);
        check_string(drive->bus, drive_bus[i]);
        check_true(core_topo_device_find(topo, drive_bus[i]) == drive);
    }
    check_true(core_topo_device_find(topo, "00000000:0F:00.0")->node == 3);
    check_true(core_topo_device_find(topo, "0f:00.0")->node == 3);
    check_true(core_topo_device_find(topo, "loop0") == NULL);
    check_true(core_topo_device_find(topo, "0000:01:00.0") == NULL);
}

static void dgx_from_files(void)
{
    struct core_topo *topo = NULL;
    check_int(core_topo_create(CORE_TOPO_SYSFS, dgx_files("dgx"), NULL, &topo), ==, 0);
    check_string(topo->source, "sysfs");
    check_is_dgx(topo);
    core_topo_destroy(topo);
    core_topo_destroy(NULL);
}

static int create_or_skip(enum core_topo_from from, const char *text, struct core_topo **out)
{
    int rc = core_topo_create(from, text, NULL, out);
    if (rc == -ENOTSUP) {
        check_contains(core_err_message(), "no hwloc");
        test_skip("this build has no hwloc");
    }
    return rc;
}

/* hwloc's XML describes the machine as its files do. */
static void dgx_from_xml(void)
{
    struct core_topo *topo = NULL;
    int rc = create_or_skip(CORE_TOPO_XML, dgx_xml(), &topo);
    check_int(rc, ==, 0);
    check_contains(topo->source, "hwloc 2");
    check_is_dgx(topo);
    core_topo_destroy(topo);
}

/* hwloc's synthetic descriptions work; the message about an invalid one quotes it. */
static void synthetic(void)
{
    struct core_topo *topo = NULL;
    check_int(create_or_skip(CORE_TOPO_SYNTHETIC, "pack:2 [numa(memory=4GB)] core:3 pu:2", &topo),
              ==, 0);
    check_int(topo->node_count, ==, 2);
    check_int(topo->core_count, ==, 6);
    check_int(core_cpus_count(&topo->nodes[1].cpus), ==, 6);
    core_topo_destroy(topo);
    topo = NULL;
    check_int(core_topo_create(CORE_TOPO_SYNTHETIC, "a:b", NULL, &topo), ==, -EINVAL);
    check_contains(core_err_message(), "\"a:b\" does not describe a machine");
    check_int(core_topo_create(CORE_TOPO_XML, "/no/such.xml", NULL, &topo), ==, -EINVAL);
    check_contains(core_err_message(), "/no/such.xml");
    check_int(core_topo_create(CORE_TOPO_XML, test_file("bad.xml", "<topo", 5), NULL, &topo), ==,
              -EINVAL);
    check_true(topo == NULL);
}

/* Both readers find equally many nodes and cores in this machine, and the same processors. */
static void live_agrees(void)
{
    struct core_topo *topo = NULL;
    struct core_topo *files = NULL;
    check_int(core_topo_create(CORE_TOPO_LIVE, NULL, NULL, &topo), ==, 0);
    check_int(core_topo_create(CORE_TOPO_SYSFS, "", NULL, &files), ==, 0);
    check_int(topo->node_count, ==, files->node_count);
    check_int(topo->core_count, ==, files->core_count);
    check_memory(&topo->cpus, &files->cpus, sizeof topo->cpus);
    struct core_cpus allowed;
    core_cpus_allowed(&allowed);
    check_memory(&topo->cpus, &allowed, sizeof allowed);
    test_note("%s: %u nodes, %u cores, %u devices; sysfs: %u devices", topo->source,
              topo->node_count, topo->core_count, topo->device_count, files->device_count);
    core_topo_destroy(topo);
    core_topo_destroy(files);
}

/* Nodes without allowed processors stay, but have no processors. */
static void cpuset_is_honoured(void)
{
    struct core_cpus allowed;
    struct core_topo *topo = NULL;
    core_cpus_parse("5-6,37,40", &allowed);
    check_int(core_topo_create(CORE_TOPO_SYSFS, dgx_files("cpuset"), &allowed, &topo), ==, 0);
    check_int(topo->node_count, ==, NODES);
    check_int(topo->core_count, ==, 3);
    check_int(core_cpus_count(&topo->nodes[0].cpus), ==, 0);
    check_int(core_cpus_count(&topo->nodes[1].cpus), ==, 3);
    check_int(core_cpus_count(&topo->nodes[2].cpus), ==, 1);
    struct core_cpus cores;
    core_topo_cores(topo, &topo->cpus, &cores);
    char text[32];
    core_cpus_print(&cores, text, sizeof text);
    check_string(text, "5-6,40");
    core_topo_destroy(topo);
    core_cpus_parse("900", &allowed);
    topo = NULL;
    check_int(core_topo_create(CORE_TOPO_SYSFS, dgx_files("nothing"), &allowed, &topo), ==,
              -EINVAL);
    check_contains(core_err_message(), "0 processors may be used");
    check_true(topo == NULL);
}

static void without_sysfs(void)
{
    const char *root = machine_root("bare");
    machine_file(root, "/proc/meminfo", "MemTotal: 1024 kB\nMemAvailable: 512 kB\n");
    struct core_topo *topo = NULL;
    check_int(core_topo_create(CORE_TOPO_SYSFS, root, NULL, &topo), ==, 0);
    check_int(topo->node_count, ==, 1);
    check_uint(topo->nodes[0].bytes, ==, 1 << 20);
    check_int(topo->core_count, ==, core_cpus_count(&topo->cpus));
    check_int(topo->device_count, ==, 0);
    core_topo_destroy(topo);
}

/* A drive over drives of one node, or with several paths, gets the node; an invalid node counts as
 * none. */
static void odd_devices(void)
{
    const char *root = dgx_files("odd");
    dgx_put_pci(root, "0000:c1:00.0", "0x120000\n", -1);
    dgx_put_pci(root, "0000:c2:00.0", "0x030000\n", 63);
    dgx_put(root, "", "/sys/devices/virtual/block/dm-0/slaves/nvme0n1p2");
    dgx_put(root, "", "/sys/devices/virtual/block/dm-0/slaves/nvme1n1");
    machine_link(root, "/sys/block/dm-0", "../devices/virtual/block/dm-0");
    dgx_put(root, "", "/sys/devices/virtual/block/md0/slaves/nvme1n1");
    dgx_put(root, "", "/sys/devices/virtual/block/md0/slaves/nvme2n1");
    machine_link(root, "/sys/block/md0", "../devices/virtual/block/md0");
    dgx_put(root, "", "/sys/devices/virtual/block/md1/slaves/nvme1n10");
    machine_link(root, "/sys/block/md1", "../devices/virtual/block/md1");
    dgx_put(root, "", "/sys/devices/virtual/nvme-subsystem/nvme-subsys9/nvme9n1/size");
    dgx_put_pci(root, "0000:99:00.0", "0x010802\n", 4);
    dgx_put(root, "", "/sys/devices/pci0000:00/0000:99:00.0/nvme/nvme9/state");
    machine_link(root, "/sys/devices/virtual/nvme-subsystem/nvme-subsys9/nvme9",
                 "../../../pci0000:00/0000:99:00.0/nvme/nvme9");
    machine_link(root, "/sys/block/nvme9n1",
                 "../devices/virtual/nvme-subsystem/nvme-subsys9/nvme9n1");
    struct core_topo *topo = NULL;
    check_int(core_topo_create(CORE_TOPO_SYSFS, root, NULL, &topo), ==, 0);
    check_int(core_topo_device_find(topo, "0000:c1:00.0")->node, ==, -1);
    check_int(core_topo_device_find(topo, "0000:c2:00.0")->node, ==, -1);
    check_int(core_topo_device_find(topo, "dm-0")->node, ==, 2);
    check_int(core_topo_device_find(topo, "md0")->node, ==, -1);
    check_int(core_topo_device_find(topo, "md1")->node, ==, -1); /* nvme1n1 is a different drive */
    check_int(core_topo_device_find(topo, "nvme9n1")->node, ==, 4);
    check_string(core_topo_device_find(topo, "nvme9n1")->bus, "0000:99:00.0");
    core_topo_destroy(topo);
}

/* A shared cache counts once; missing or odd files give 0. */
static void caches_count_once(void)
{
    static const struct {
        unsigned cpu;
        const char *size, *shared;
    } files[] = {{0, "32768K\n", "0-1\n"}, {1, "32768K\n", "0-1\n"}, {2, "1024K\n", "2-3\n"},
                 {3, "1024K\n", "2-3\n"},  {4, "16M\n", "4\n"},      {5, "8192K\n", "5-x\n"}};
    const char *root = machine_root("caches");
    struct core_cpus set = {0};
    char path[128];
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/cache/index3/size",
                 files[i].cpu);
        machine_file(root, path, files[i].size);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/cache/index3/shared_cpu_list",
                 files[i].cpu);
        machine_file(root, path, files[i].shared);
    }
    check_uint(core_caches_bytes(&set, root), ==, 0);
    core_cpus_add(&set, 1);
    check_uint(core_caches_bytes(&set, root), ==, 32 << 20);
    core_cpus_add(&set, 0);
    check_uint(core_caches_bytes(&set, root), ==, 32 << 20);
    for (unsigned cpu = 3; cpu < 8; cpu++) {
        core_cpus_add(&set, cpu);
    }
    check_uint(core_caches_bytes(&set, root), ==, 33 << 20);
}

static void check_finds_contradictions(void)
{
    struct core_topo *good = NULL;
    check_int(core_topo_create(CORE_TOPO_SYSFS, dgx_files("good"), NULL, &good), ==, 0);
    struct core_topo *bad = malloc(sizeof *bad);
    check_true(bad != NULL);
    *bad = *good;
    core_cpus_add(&bad->nodes[4].cpus, 0);
    check_int(core_topo_check(bad), ==, -EINVAL);
    check_contains(core_err_message(), "node 4 has 1 processors that belong to another node");
    *bad = *good;
    core_cpus_add(&bad->nodes[4].cpus, 700);
    check_int(core_topo_check(bad), ==, -EINVAL);
    *bad = *good;
    bad->nodes[4].number = 3;
    check_int(core_topo_check(bad), ==, -EINVAL);
    check_contains(core_err_message(), "node 3 is listed twice");
    *bad = *good;
    bad->core_of[9] = 5000;
    check_int(core_topo_check(bad), ==, -EINVAL);
    check_contains(core_err_message(), "processor 9 is on core 5000, and there are 32 cores");
    *bad = *good;
    bad->devices[2].node = 77;
    check_int(core_topo_check(bad), ==, -EINVAL);
    check_contains(core_err_message(), "attached to node 77");
    *bad = *good;
    bad->devices[2] = bad->devices[1];
    check_int(core_topo_check(bad), ==, -EINVAL);
    *bad = *good;
    bad->node_count = 0;
    check_int(core_topo_check(bad), ==, -EINVAL);
    *bad = *good;
    bad->nodes[0].cpus = (struct core_cpus){0};
    check_int(core_topo_check(bad), ==, -EINVAL);
    check_contains(core_err_message(), "64 processors may be used, but the nodes have 56");
    free(bad);
    core_topo_destroy(good);
}

/* Tests bus ids, names of drives, and tables of nodes and devices. */
static void names_and_numbers(void)
{
    char bus[16];
    check_int(core_topo_bus_write("00000000:3B:00.0", bus, sizeof bus), ==, 0);
    check_string(bus, "0000:3b:00.0");
    check_int(core_topo_bus_write("3b:0a.1", bus, sizeof bus), ==, 0);
    check_string(bus, "0000:3b:0a.1");
    const char *const bad[] = {"", "nvme0n1", "0000:3b:00", "0000:3b:00.0x", "zz:00.0"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        check_int(core_topo_bus_write(bad[i], bus, sizeof bus), ==, -EINVAL);
    }
    check_true(core_topo_is_drive("nvme0n1") && core_topo_is_drive("sda"));
    check_true(!core_topo_is_drive("loop3") && !core_topo_is_drive("zram0"));
    struct core_topo *topo = NULL;
    check_int(core_topo_create(CORE_TOPO_SYSFS, dgx_files("numbers"), NULL, &topo), ==, 0);
    check_true(core_topo_node_find(topo, 7) == &topo->nodes[7]);
    check_true(core_topo_node_find(topo, 8) == NULL);
    topo->node_count = CORE_TOPO_NODES_MAX;
    check_true(core_topo_node_add(topo, 90) == NULL);
    topo->node_count = NODES;
    check_true(core_topo_node_add(topo, -1) == NULL);
    check_true(core_topo_node_add(topo, 90) == &topo->nodes[NODES]);
    topo->device_count = CORE_TOPO_DEVICES_MAX;
    check_true(core_topo_device_add(topo, CORE_TOPO_GPU, "x") == NULL);
    topo->device_count = 0;
    check_true(core_topo_device_add(topo, CORE_TOPO_GPU, "x") == &topo->devices[0]);
    core_topo_destroy(topo);
    topo = calloc(1, sizeof *topo);
    check_true(topo != NULL);
    check_int(core_topo_read_sysfs(dgx_files("direct"), topo), ==, 0);
    check_int(topo->node_count, ==, NODES);
    core_topo_destroy(topo);
}

/* A path has a drive, or the error states the reason. */
static void drive_of_a_path(void)
{
    char name[64];
    int rc = core_topo_drive_of("/", name, sizeof name);
    check_true(rc == 0 || rc == -ENOENT);
    test_note("/ lies on %s", rc == 0 ? name : core_err_message());
    check_int(core_topo_drive_of("/proc", name, sizeof name), ==, -ENOENT);
    check_contains(core_err_message(), "/proc is not on a block device");
    check_int(core_topo_drive_of("/no/such/path", name, sizeof name), ==, -ENOENT);
    check_contains(core_err_message(), "/no/such/path: ");
}

/* ---- placement ---- */

static struct core_topo_place place_of(const struct core_topo *topo, uint32_t rank, uint32_t ranks,
                                       const int *beside)
{
    const struct core_topo_wish wish = {.rank = rank, .ranks = ranks, .beside = beside};
    struct core_topo_place place;
    check_int(core_topo_decide(topo, &wish, &place), ==, 0);
    return place;
}

/* Checks that the shares contain each processor once, and only processors of their own nodes. */
static void check_covers(const struct core_topo *topo, uint32_t ranks, const int *beside)
{
    unsigned times[CORE_CPUS_MAX] = {0};
    for (uint32_t rank = 0; rank < ranks; rank++) {
        struct core_topo_place place = place_of(topo, rank, ranks, beside);
        check_int(place.share_count, >=, 1);
        for (uint32_t i = 0; i < place.share_count; i++) {
            const struct core_topo_node *node = core_topo_node_find(topo, place.shares[i].node);
            check_true(node != NULL);
            check_int(core_cpus_count(&place.shares[i].cpus), >=, 1);
            for (unsigned cpu = 0; cpu < CORE_CPUS_MAX; cpu++) {
                if (core_cpus_has(&place.shares[i].cpus, cpu)) {
                    check_true(core_cpus_has(&node->cpus, cpu));
                    times[cpu]++;
                }
            }
        }
    }
    for (unsigned cpu = 0; cpu < CORE_CPUS_MAX; cpu++) {
        check_int(times[cpu], ==, core_cpus_has(&topo->cpus, cpu) ? 1 : 0);
    }
}

/* A rank's home is the node of its GPU; processors of nodes without GPUs are used, too. */
static void ranks_on_a_dgx(void)
{
    struct core_topo *topo = NULL;
    check_int(core_topo_create(CORE_TOPO_SYSFS, dgx_files("place"), NULL, &topo), ==, 0);
    char text[64];
    for (uint32_t rank = 0; rank < GPUS; rank++) {
        const struct core_topo_place place = place_of(topo, rank, GPUS, gpu_node);
        check_int(place.shares[0].node, ==, gpu_node[rank]);
    }
    struct core_topo_place second = place_of(topo, 1, GPUS, gpu_node);
    check_int(second.share_count, ==, 1);
    core_cpus_print(&second.shares[0].cpus, text, sizeof text);
    check_string(text, "14-15,46-47");
    struct core_topo_place third = place_of(topo, 2, GPUS, gpu_node);
    check_int(third.share_count, ==, 2);
    check_int(third.shares[1].node, ==, 2);
    check_covers(topo, GPUS, gpu_node);
    check_covers(topo, 1, gpu_node);
    check_covers(topo, 3, gpu_node);
    check_covers(topo, 1, NULL);
    check_covers(topo, 2, NULL);
    check_covers(topo, 13, NULL);
    check_covers(topo, 32, NULL);
    struct core_topo_place only = place_of(topo, 0, 1, gpu_node);
    check_int(only.share_count, ==, NODES);
    check_int(only.shares[0].node, ==, 3);
    core_topo_destroy(topo);
}

/* Ranks share cores if needed, and only nodes with processors get threads. Invalid requests are
 * refused. */
static void odd_placements(void)
{
    struct core_cpus allowed;
    struct core_topo *topo = NULL;
    core_cpus_parse("4-5,36-37", &allowed);
    check_int(core_topo_create(CORE_TOPO_SYSFS, dgx_files("small"), &allowed, &topo), ==, 0);
    const int unknown[] = {-1, 99, -1, 7, -1};
    for (uint32_t rank = 0; rank < 5; rank++) {
        struct core_topo_place place = place_of(topo, rank, 5, unknown);
        check_int(place.share_count, ==, 1);
        check_int(place.shares[0].node, ==, 1);
        check_int(core_cpus_count(&place.shares[0].cpus), ==, 2);
    }
    struct core_topo_place place;
    struct core_topo_wish wish = {.rank = 2, .ranks = 2};
    check_int(core_topo_decide(topo, &wish, &place), ==, -EINVAL);
    check_contains(core_err_message(), "rank 2 of 2");
    wish = (struct core_topo_wish){0};
    check_int(core_topo_decide(topo, &wish, &place), ==, -EINVAL);
    topo->nodes[1].bytes = 0;
    check_int(place_of(topo, 0, 1, NULL).shares[0].node, ==, 1);
    core_topo_destroy(topo);
}

TEST_MAIN({"dgx_from_files", dgx_from_files}, {"dgx_from_xml", dgx_from_xml},
          {"synthetic", synthetic}, {"live_agrees", live_agrees},
          {"cpuset_is_honoured", cpuset_is_honoured}, {"without_sysfs", without_sysfs},
          {"odd_devices", odd_devices}, {"caches_count_once", caches_count_once},
          {"check_finds_contradictions", check_finds_contradictions},
          {"names_and_numbers", names_and_numbers}, {"drive_of_a_path", drive_of_a_path},
          {"ranks_on_a_dgx", ranks_on_a_dgx}, {"odd_placements", odd_placements})
