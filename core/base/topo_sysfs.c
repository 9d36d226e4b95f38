/* topo_sysfs.c: reads the machine from the kernel's files below a root. Without information: one
 * node, one core per processor, node -1 for devices. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "core/base/err.h"
#include "core/base/mem_limits.h"
#include "core/base/sysfile.h"
#include "core/base/topo_read.h"

enum { TEXT_BYTES = 8192, PCI_CLASS_DISPLAY = 0x03, PCI_CLASS_ACCELERATOR = 0x12 };

static void read_nodes(const char *root, struct core_topo *topo)
{
    char text[TEXT_BYTES];
    struct core_cpus online = {0};
    if (core_sysfile_text(text, sizeof text, root, "/sys/devices/system/node/online") > 0) {
        core_cpus_parse(text, &online);
    }
    for (int number = 0; number < CORE_CPUS_MAX; number++) {
        if (!core_cpus_has(&online, (unsigned)number)) {
            continue;
        }
        struct core_topo_node *node = core_topo_node_add(topo, number);
        const char *folder = "/sys/devices/system/node";
        if (node == NULL) {
            return;
        }
        if (core_sysfile_text(text, sizeof text, root, "%s/node%d/cpulist", folder, number) > 0) {
            core_cpus_parse(text, &node->cpus);
        }
        if (core_sysfile_text(text, sizeof text, root, "%s/node%d/meminfo", folder, number) > 0) {
            char key[32];
            snprintf(key, sizeof key, "Node %d MemTotal:", number);
            core_sysfile_field(text, key, &node->bytes);
        }
    }
}

static void read_cpus(const char *root, struct core_topo *topo)
{
    char text[TEXT_BYTES];
    if (core_sysfile_text(text, sizeof text, root, "/sys/devices/system/cpu/online") > 0) {
        core_cpus_parse(text, &topo->cpus);
    }
    if (core_cpus_count(&topo->cpus) == 0) {
        core_cpus_allowed(&topo->cpus);
    }
    for (unsigned cpu = 0; cpu < CORE_CPUS_MAX; cpu++) {
        struct core_cpus siblings = {0};
        if (core_cpus_has(&topo->cpus, cpu) &&
            core_sysfile_text(text, sizeof text, root,
                              "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list",
                              cpu) > 0 &&
            core_cpus_parse(text, &siblings) == 0 && core_cpus_count(&siblings) > 0) {
            topo->core_of[cpu] = (uint16_t)core_cpus_nth(&siblings, 0);
        }
    }
}

/* One node has all processors and memory. */
static void make_one_node(const char *root, struct core_topo *topo)
{
    struct core_topo_node *node = core_topo_node_add(topo, 0);
    struct core_mem_limits limits;
    node->cpus = topo->cpus;
    if (core_mem_limits(root, &limits) == 0 && limits.total_bytes != CORE_MEM_UNLIMITED) {
        node->bytes = limits.total_bytes;
    }
}

static void read_gpus(const char *root, struct core_topo *topo)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices", root);
    DIR *folder = opendir(path);
    const struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        char bus[16];
        char text[32];
        if (core_topo_bus_write(entry->d_name, bus, sizeof bus) != 0 ||
            core_sysfile_text(text, sizeof text, path, "/%s/class", entry->d_name) < 0) {
            continue;
        }
        unsigned long class = strtoul(text, NULL, 16) >> 16;
        if (class != PCI_CLASS_DISPLAY && class != PCI_CLASS_ACCELERATOR) {
            continue;
        }
        struct core_topo_device *gpu = core_topo_device_add(topo, CORE_TOPO_GPU, bus);
        int64_t node = -1;
        if (gpu != NULL) {
            snprintf(gpu->bus, sizeof gpu->bus, "%s", bus);
            core_sysfile_number(&node, path, "/%s/numa_node", entry->d_name);
            gpu->node = (int)node;
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
}

/* Walks up `real`, which is overwritten, to a PCI device. Sets the drive's bus and node. */
static void walk_to_bus(const char *root, char *real, struct core_topo_device *drive)
{
    size_t shortest = strlen(root) + strlen("/sys/");
    for (char *slash = strrchr(real, '/'); slash != NULL; slash = strrchr(real, '/')) {
        core_topo_bus_write(slash + 1, drive->bus, sizeof drive->bus);
        int64_t node = -1;
        if (core_sysfile_number(&node, real, "/numa_node") == 0 && node >= 0) {
            drive->node = (int)node;
        }
        if (drive->bus[0] != '\0' || (size_t)(slash - real) <= shortest) {
            return;
        }
        *slash = '\0';
    }
}

/* A drive with several paths (NVMe multipath) is not below a PCI device; links lead to its
 * controllers. */
static void look_at_paths(const char *root, char *real, struct core_topo_device *drive)
{
    *strrchr(real, '/') = '\0';
    DIR *folder = opendir(real);
    const struct dirent *entry;
    while (folder != NULL && drive->bus[0] == '\0' && (entry = readdir(folder)) != NULL) {
        char path[PATH_MAX + sizeof entry->d_name + 1];
        char there[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", real, entry->d_name);
        if (strncmp(entry->d_name, "nvme", 4) == 0 && realpath(path, there) != NULL) {
            walk_to_bus(root, there, drive);
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
}

static void find_bus(const char *root, const char *name, struct core_topo_device *drive)
{
    char path[PATH_MAX];
    char real[PATH_MAX];
    snprintf(path, sizeof path, "%s/sys/block/%s", root, name);
    if (realpath(path, real) == NULL) {
        return;
    }
    char copy[PATH_MAX];
    snprintf(copy, sizeof copy, "%s", real);
    walk_to_bus(root, copy, drive);
    if (drive->bus[0] == '\0' && strstr(real, "/nvme-subsystem/") != NULL) {
        look_at_paths(root, real, drive);
    }
}

/* Returns whether a name is the drive's or a partition's: sda1, nvme0n1p2. */
static bool is_of_drive(const char *name, const char *drive)
{
    const size_t length = strlen(drive);
    if (strncmp(name, drive, length) != 0) {
        return false;
    }
    const char *rest = name + length;
    if (isdigit((unsigned char)drive[length - 1])) {
        if (*rest != 'p') {
            return *rest == '\0';
        }
        rest++;
    }
    return rest[strspn(rest, "0123456789")] == '\0';
}

/* Returns the common node of a drive's parts (RAID, device mapper, encryption); else -1. */
static int node_of_parts(const char *root, const struct core_topo *topo, const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/sys/block/%s/slaves", root, name);
    DIR *folder = opendir(path);
    const struct dirent *entry;
    int node = -2;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        for (uint32_t i = 0; entry->d_name[0] != '.' && i < topo->device_count; i++) {
            const struct core_topo_device *part = &topo->devices[i];
            if (part->kind == CORE_TOPO_DRIVE && is_of_drive(entry->d_name, part->name)) {
                node = node == -2 || node == part->node ? part->node : -1;
            }
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return node < 0 ? -1 : node;
}

static void read_drives(const char *root, struct core_topo *topo)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/sys/block", root);
    DIR *folder = opendir(path);
    const struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] == '.' || !core_topo_is_drive(entry->d_name)) {
            continue;
        }
        struct core_topo_device *drive = core_topo_device_add(topo, CORE_TOPO_DRIVE, entry->d_name);
        if (drive != NULL) {
            find_bus(root, entry->d_name, drive);
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
    for (uint32_t i = 0; i < topo->device_count; i++) {
        struct core_topo_device *drive = &topo->devices[i];
        if (drive->kind == CORE_TOPO_DRIVE && drive->node < 0) {
            drive->node = node_of_parts(root, topo, drive->name);
        }
    }
}

int core_topo_read_sysfs(const char *root, struct core_topo *topo)
{
    snprintf(topo->source, sizeof topo->source, "sysfs");
    read_nodes(root, topo);
    read_cpus(root, topo);
    if (topo->node_count == 0) {
        make_one_node(root, topo);
    }
    read_gpus(root, topo);
    read_drives(root, topo);
    return 0;
}

int core_topo_drive_of(const char *path, char *name, size_t bytes)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        int rc = -errno;
        return core_err_set(rc, "%s: %s", path, strerror(-rc));
    }
    char link[64];
    char real[PATH_MAX];
    snprintf(link, sizeof link, "/sys/dev/block/%u:%u", major(info.st_dev), minor(info.st_dev));
    if (realpath(link, real) == NULL) {
        return core_err_set(-ENOENT, "%s is not on a block device known to /sys (%u:%u)", path,
                            major(info.st_dev), minor(info.st_dev));
    }
    int64_t partition = 0;
    if (core_sysfile_number(&partition, real, "/partition") == 0) {
        *strrchr(real, '/') = '\0';
    }
    snprintf(name, bytes, "%s", strrchr(real, '/') + 1);
    return 0;
}
