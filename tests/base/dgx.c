/* dgx.c: writes the machine as files of the kernel and as hwloc's XML. */
#include "tests/base/dgx.h"

#include <stdarg.h>
#include <stdio.h>

#include "tests/base/machine.h"
#include "tests/harness/test.h"

const int gpu_node[GPUS] = {3, 3, 1, 1, 7, 7, 5, 5};
const char *const gpu_bus[GPUS] = {"0000:07:00.0", "0000:0f:00.0", "0000:47:00.0", "0000:4e:00.0",
                                   "0000:87:00.0", "0000:90:00.0", "0000:b7:00.0", "0000:bd:00.0"};
const int drive_node[DRIVES] = {2, 2, 6, 6};
const char *const drive_bus[DRIVES] = {"0000:22:00.0", "0000:23:00.0", "0000:63:00.0",
                                       "0000:64:00.0"};

/* ---- the machine as files ---- */

void dgx_put(const char *root, const char *text, const char *format, ...)
{
    char path[256];
    va_list list;
    va_start(list, format);
    vsnprintf(path, sizeof path, format, list);
    va_end(list);
    machine_file(root, path, text);
}

static void put_nodes(const char *root)
{
    char text[128];
    dgx_put(root, "0-63\n", "/sys/devices/system/cpu/online");
    dgx_put(root, "0-7\n", "/sys/devices/system/node/online");
    for (int node = 0; node < NODES; node++) {
        snprintf(text, sizeof text, "%d-%d,%d-%d\n", node * 4, node * 4 + 3, 32 + node * 4,
                 32 + node * 4 + 3);
        dgx_put(root, text, "/sys/devices/system/node/node%d/cpulist", node);
        snprintf(text, sizeof text, "Node %d MemTotal: 134217728 kB\nNode %d MemFree: 1 kB\n", node,
                 node);
        dgx_put(root, text, "/sys/devices/system/node/node%d/meminfo", node);
    }
    for (int cpu = 0; cpu < 64; cpu++) {
        snprintf(text, sizeof text, "%d,%d\n", cpu % 32, cpu % 32 + 32);
        dgx_put(root, text, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    }
}

void dgx_put_pci(const char *root, const char *bus, const char *class, int node)
{
    char text[16];
    char path[128];
    snprintf(text, sizeof text, "%d\n", node);
    dgx_put(root, class, "/sys/devices/pci0000:00/%s/class", bus);
    dgx_put(root, text, "/sys/devices/pci0000:00/%s/numa_node", bus);
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s", bus);
    char target[128];
    snprintf(target, sizeof target, "../../../devices/pci0000:00/%s", bus);
    machine_link(root, path, target);
}

const char *dgx_files(const char *name)
{
    const char *root = machine_root(name);
    put_nodes(root);
    for (int i = 0; i < GPUS; i++) {
        dgx_put_pci(root, gpu_bus[i], "0x030200\n", gpu_node[i]);
    }
    dgx_put_pci(root, "0000:01:00.0", "0x020700\n", 1);
    for (int i = 0; i < DRIVES; i++) {
        char path[64];
        char target[128];
        dgx_put_pci(root, drive_bus[i], "0x010802\n", drive_node[i]);
        dgx_put(root, "0\n", "/sys/devices/pci0000:00/%s/nvme/nvme%d/nvme%dn1/size", drive_bus[i],
                i, i);
        snprintf(path, sizeof path, "/sys/block/nvme%dn1", i);
        snprintf(target, sizeof target, "../devices/pci0000:00/%s/nvme/nvme%d/nvme%dn1",
                 drive_bus[i], i, i);
        machine_link(root, path, target);
    }
    dgx_put(root, "0\n", "/sys/devices/virtual/block/loop0/size");
    machine_link(root, "/sys/block/loop0", "../devices/virtual/block/loop0");
    return root;
}

/* ---- the same machine as XML ---- */

static void write_set(FILE *file, const char *name, uint64_t bits)
{
    fprintf(file, " %s=\"0x%08x,0x%08x\"", name, (unsigned)(bits >> 32), (unsigned)bits);
}

static void write_sets(FILE *file, uint64_t cpus, uint64_t nodes)
{
    write_set(file, "cpuset", cpus);
    write_set(file, "complete_cpuset", cpus);
    write_set(file, "nodeset", nodes);
    write_set(file, "complete_nodeset", nodes);
}

static void write_pci(FILE *file, const char *bus, const char *class, const char *block)
{
    unsigned number;
    static unsigned index = 1000;
    sscanf(bus, "0000:%x", &number);
    fprintf(file,
            "<object type=\"Bridge\" gp_index=\"%u\" bridge_type=\"0-1\" depth=\"0\" "
            "bridge_pci=\"0000:[%02x-%02x]\">\n",
            index++, number, number);
    fprintf(file,
            "<object type=\"PCIDev\" gp_index=\"%u\" pci_busid=\"%s\" pci_type=\"%s [10de:20b0] "
            "[10de:0000] a1\" pci_link_speed=\"0.0\">\n",
            index++, bus, class);
    if (block != NULL) {
        fprintf(file,
                "<object type=\"OSDev\" gp_index=\"%u\" name=\"%s\" subtype=\"Disk\" "
                "osdev_type=\"0\"/>\n",
                index++, block);
    }
    fprintf(file, "</object></object>\n");
}

static void write_node(FILE *file, int node)
{
    uint64_t cpus = UINT64_C(0xf) << (node * 4) | UINT64_C(0xf) << (32 + node * 4);
    uint64_t set = UINT64_C(1) << node;
    unsigned index = 10 + (unsigned)node * 20;
    fprintf(file, "<object type=\"Group\" kind=\"1000\" subkind=\"0\" gp_index=\"%u\"", index++);
    write_sets(file, cpus, set);
    fprintf(file,
            ">\n<object type=\"NUMANode\" os_index=\"%d\" gp_index=\"%u\" "
            "local_memory=\"137438953472\"",
            node, index++);
    write_sets(file, cpus, set);
    fprintf(file, "/>\n");
    for (int core = 0; core < CORES; core++) {
        int cpu = node * 4 + core;
        uint64_t pair = UINT64_C(1) << cpu | UINT64_C(1) << (cpu + 32);
        fprintf(file, "<object type=\"Core\" os_index=\"%d\" gp_index=\"%u\"", cpu, index++);
        write_sets(file, pair, set);
        fprintf(file, ">\n");
        for (int i = 0; i < 2; i++) {
            fprintf(file, "<object type=\"PU\" os_index=\"%d\" gp_index=\"%u\"", cpu + 32 * i,
                    index++);
            write_sets(file, UINT64_C(1) << (cpu + 32 * i), set);
            fprintf(file, "/>\n");
        }
        fprintf(file, "</object>\n");
    }
    for (int i = 0; i < GPUS; i++) {
        if (gpu_node[i] == node) {
            write_pci(file, gpu_bus[i], "0302", NULL);
        }
    }
    for (int i = 0; i < DRIVES; i++) {
        char name[16];
        snprintf(name, sizeof name, "nvme%dn1", i);
        if (drive_node[i] == node) {
            write_pci(file, drive_bus[i], "0108", name);
        }
    }
    fprintf(file, "</object>\n");
}

const char *dgx_xml(void)
{
    const char *path = test_file("dgx.xml", "", 0);
    FILE *file = fopen(path, "we");
    check_true(file != NULL);
    fprintf(file, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                  "<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"2.0\">\n"
                  "<object type=\"Machine\" os_index=\"0\" gp_index=\"1\"");
    write_sets(file, UINT64_MAX, 0xff);
    write_set(file, "allowed_cpuset", UINT64_MAX);
    write_set(file, "allowed_nodeset", 0xff);
    fprintf(file, ">\n");
    for (int node = 0; node < NODES; node++) {
        write_node(file, node);
    }
    fprintf(file, "</object></topology>\n");
    check_int(fclose(file), ==, 0);
    return path;
}
