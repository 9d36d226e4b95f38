/* test_machines.c: files of machines are read or refused, and the ranks of a node share its
 * resources. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "offload/run/machine.h"
#include "tests/harness/test.h"

static const char *const shipped[] = {"4090-workstation", "dgx-2", "dgx-h100", "epyc-96", "h200"};

static void read_shipped(const char *name, struct run_machine *out)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/../tools/machines/%s.json", test_root(), name);
    const int rc = run_machine_read(path, out);
    if (rc != 0) {
        test_fail(__FILE__, __LINE__, "%s: %d: %s", name, rc, core_err_message());
    }
}

static void shipped_files_are_read(void)
{
    struct run_machine machine;
    for (size_t i = 0; i < sizeof shipped / sizeof shipped[0]; i++) {
        read_shipped(shipped[i], &machine);
        check_true(machine.flops > 0 && machine.host_bytes > 0 && machine.cores > 0);
    }
    read_shipped("dgx-2", &machine);
    check_true(machine.card);
    check_double(machine.devices, ==, 16);
    check_double(machine.links_bytes, ==, 48e9);
    read_shipped("epyc-96", &machine);
    check_true(!machine.card);
}

/* ---- wrong files ---- */

static const char good[] =
    "{\n"
    " \"version\": 1, \"name\": \"a node\", \"device\": \"cuda\",\n"
    " \"devices\": {\"value\": 4, \"source\": \"s\"},\n"
    " \"device_bytes\": {\"value\": 32e9, \"source\": \"s\"},\n"
    " \"device_memory_bytes_per_second\": {\"value\": 9e11, \"source\": \"s\"},\n"
    " \"flops_per_second\": {\"value\": 7e13, \"source\": \"s\"},\n"
    " \"up_bytes_per_second\": {\"value\": 12e9, \"source\": \"s\"},\n"
    " \"down_bytes_per_second\": {\"value\": 11e9, \"source\": \"s\"},\n"
    " \"links_bytes_per_second\": {\"value\": 24e9, \"source\": \"s\"},\n"
    " \"cores\": {\"value\": 48, \"source\": \"s\"},\n"
    " \"host_bytes\": {\"value\": 1e12, \"source\": \"s\"},\n"
    " \"memory_bytes_per_second\": {\"value\": 2e11, \"source\": \"s\"},\n"
    " \"store_bytes\": {\"value\": 3e13, \"source\": \"s\"},\n"
    " \"read_bytes_per_second\": {\"value\": 20e9, \"source\": \"s\"},\n"
    " \"write_bytes_per_second\": {\"value\": 16e9, \"source\": \"s\"},\n"
    " \"mixed_bytes_per_second\": {\"value\": 24e9, \"source\": \"s\"},\n"
    " \"inside_bytes_per_second\": {\"value\": 150e9, \"source\": \"s\"},\n"
    " \"between_bytes_per_second\": {\"value\": 100e9, \"source\": \"s\"},\n"
    " \"command_seconds\": {\"value\": 3e-6, \"source\": \"s\"}\n"
    "}\n";

/* Reads `good` with `from` replaced by `to`. */
static int read_changed(const char *from, const char *to, struct run_machine *out)
{
    char text[4096];
    const char *at = strstr(good, from);
    check_true(at != NULL);
    const int length = snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, to,
                                at + strlen(from));
    return run_machine_read(test_file("machine.json", text, (size_t)length), out);
}

/* `where`: file, line and column, or the key; `why`: what is wrong. */
static void refuse(const char *from, const char *to, const char *where, const char *why)
{
    struct run_machine machine;
    const int rc = read_changed(from, to, &machine);
    if (rc == 0 || strstr(core_err_message(), where) == NULL ||
        strstr(core_err_message(), why) == NULL) {
        test_fail(__FILE__, __LINE__, "%s -> %s: %d: %s", from, to, rc, core_err_message());
    }
}

static void wrong_files_are_refused(void)
{
    struct run_machine machine;
    check_int(read_changed("s", "s", &machine), ==, 0);
    refuse("\"version\": 1", "\"version\": 2", "machine.json:2:2: version", "this build reads 1");
    refuse("\"device\": \"cuda\"", "\"device\": \"tpu\"", "machine.json:2:34: device", "\"tpu\"");
    refuse("\"links_bytes", "\"link_bytes", "machine.json:9:2: link_bytes_per_second",
           "unknown key");
    refuse("{\"value\": 7e13, \"source\": \"s\"}", "7e13", "machine.json:6:2: flops_per_second",
           "expected an object");
    refuse("\"value\": 7e13, \"source\": \"s\"", "\"value\": 7e13", "machine.json:6:", "source");
    refuse("\"value\": 7e13, \"source\": \"s\"", "\"value\": 7e13, \"source\": \"\"",
           "machine.json:6:38: flops_per_second.source", "empty");
    refuse("\"value\": 7e13", "\"value\": 0", "machine.json:6:23: flops_per_second.value",
           "expected a number from 1 to 1e21");
    refuse("\"value\": 12e9", "\"value\": -1", "machine.json:7:26: up_bytes_per_second.value",
           "from 1 to 1e21");
    refuse("\"value\": 3e-6", "\"value\": 1e-308", "command_seconds.value", "from 1e-12 to 1e6");
    refuse("\"value\": 4,", "\"value\": 4.5,", "machine.json:3:14: devices.value", "integer");
    refuse(" \"cores\"", " \"numa_nodes\": {\"value\": 1.5, \"source\": \"s\"},\n \"cores\"",
           "numa_nodes.value", "integer");
    refuse(" \"command_seconds\": {\"value\": 3e-6, \"source\": \"s\"}\n", " \"name\": \"twice\"\n",
           "machine.json:19:2", "duplicate");
    refuse(" \"cores\": {\"value\": 48, \"source\": \"s\"},\n", "", "cores", "missing");
    refuse(" \"device_bytes\": {\"value\": 32e9, \"source\": \"s\"},\n", "", "device_bytes",
           "machine with GPUs");
    refuse(" \"inside_bytes_per_second\": {\"value\": 150e9, \"source\": \"s\"},\n", "",
           "inside_bytes_per_second", "several GPUs");
    refuse(" \"write_bytes_per_second\": {\"value\": 16e9, \"source\": \"s\"},\n", "",
           "write_bytes_per_second", "drives");
    check_int(run_machine_read("/nowhere/machine.json", &machine), ==, -ENOENT);
}

/* ---- how ranks share a machine ---- */

static struct run_options options_of(uint32_t world, uint32_t local)
{
    return (struct run_options){.world = world,
                                .local = local,
                                .type = KERN_BF16,
                                .rule = CORE_UPDATE_ADAMW,
                                .moments = CORE_UPDATE_F32};
}

/* Ranks divide a node's drives, memory and slow links, but not its cards. */
static void ranks_share_a_node(void)
{
    struct run_machine machine;
    check_int(read_changed("s", "s", &machine), ==, 0);
    const struct run_options one = options_of(1, 1);
    const struct run_options four = options_of(4, 4);
    const struct plan_rates alone = run_machine_rates(&machine, &one).machine;
    const struct plan_rates shared = run_machine_rates(&machine, &four).machine;
    check_double(alone.read_bytes, ==, 20e9);
    check_double(shared.read_bytes, ==, 5e9);
    check_double(shared.write_bytes, ==, 4e9);
    check_double(shared.mixed_bytes, ==, 6e9);
    check_double(alone.up_bytes, ==, 12e9);
    check_double(shared.up_bytes, ==, 6e9);
    check_double(shared.down_bytes, ==, 6e9);
    check_double(alone.update_elements, ==, 2e11 / 26); /* 26 bytes per element */
    check_double(shared.update_elements, ==, alone.update_elements / 4);
    check_double(shared.flops, ==, alone.flops);
    check_double(shared.card_update_elements, ==, alone.card_update_elements);
    check_double(shared.coll_bytes, ==, 150e9);
    check_true(!shared.shared_cores);
    /* Of three ranks on two NUMA nodes, the two that share a node are the slowest. */
    machine.numa_nodes = 2;
    const struct run_options three = options_of(3, 3);
    check_double(run_machine_rates(&machine, &one).machine.memory_bytes, ==, alone.memory_bytes);
    check_double(run_machine_rates(&machine, &three).machine.memory_bytes, ==,
                 alone.memory_bytes / 4);
    check_double(run_machine_rates(&machine, &four).machine.memory_bytes, ==,
                 alone.memory_bytes / 4);
    machine.numa_nodes = 8;
    check_double(run_machine_rates(&machine, &three).machine.memory_bytes, ==,
                 alone.memory_bytes / 4);
}

/* Returns the memory traffic that a plan counts per updated element. */
static double touched_bytes(enum kern_type type, bool gradients_fp32)
{
    struct run_machine machine;
    struct run_options options = options_of(1, 1);
    check_int(read_changed("s", "s", &machine), ==, 0);
    options.type = type;
    options.gradients_fp32 = gradients_fp32;
    return machine.memory_bytes / run_machine_rates(&machine, &options).machine.update_elements;
}

/* An update reads and writes the master. Weights beside an fp32 master are only written. */
static void an_update_reads_the_master_once(void)
{
    const double moments = 2 * (4 + 4); /* m and v, read and written */
    check_double(touched_bytes(KERN_BF16, false), ==, moments + 2 * (2 + 2) + 2);
    check_double(touched_bytes(KERN_FP16, false), ==, moments + 2 * 4 + 2 + 2);
    check_double(touched_bytes(KERN_FP16, true), ==, moments + 2 * 4 + 2 + 4);
    check_double(touched_bytes(KERN_F32, false), ==, moments + 2 * 4 + 4);
}

/* Without GPUs, ranks divide processors and copy in shared memory. */
static void ranks_share_processors(void)
{
    struct run_machine machine;
    read_shipped("epyc-96", &machine);
    const struct run_options four = options_of(4, 4);
    const struct plan_rates shared = run_machine_rates(&machine, &four).machine;
    check_double(shared.flops, ==, machine.flops / 4);
    check_double(shared.coll_bytes, ==, machine.memory_bytes / 4 / 2);
    check_true(shared.shared_cores);
}

/* A node receives 31 of 32 parts from other nodes, a rank 511 of 512. The network is slower than
 * the link within a node. */
static void nodes_share_their_network(void)
{
    struct run_machine machine;
    read_shipped("dgx-2", &machine);
    const struct run_options many = options_of(512, 16);
    const double rate = run_machine_rates(&machine, &many).machine.coll_bytes;
    const double whole = 1e9;
    const double seconds = whole * 31 / 32 / machine.between_bytes;
    check_double(fabs(whole * 511 / 512 / rate - seconds), <, seconds * 1e-9);
    struct run_options groups = many;
    groups.within = 16;
    check_double(run_machine_rates(&machine, &many).machine.within_bytes, ==, 0);
    check_double(run_machine_rates(&machine, &groups).machine.within_bytes, ==,
                 machine.inside_bytes);
    groups.within = 32; /* a group then has ranks of two nodes */
    check_double(run_machine_rates(&machine, &groups).machine.within_bytes, ==, rate);
    machine.between_bytes = 1e15;
    check_double(run_machine_rates(&machine, &many).machine.coll_bytes, ==, machine.inside_bytes);
}

TEST_MAIN({"shipped_files_are_read", shipped_files_are_read},
          {"wrong_files_are_refused", wrong_files_are_refused},
          {"ranks_share_a_node", ranks_share_a_node},
          {"an_update_reads_the_master_once", an_update_reads_the_master_once},
          {"ranks_share_processors", ranks_share_processors},
          {"nodes_share_their_network", nodes_share_their_network})
