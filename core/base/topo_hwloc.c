/* topo_hwloc.c: the wrapper of hwloc: reads the live system, an XML file or a string. */
#include <errno.h>
#include <hwloc.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/topo_read.h"

enum { PCI_CLASS_DISPLAY = 0x03, PCI_CLASS_ACCELERATOR = 0x12 };

static struct core_cpus cpus_of(hwloc_const_bitmap_t from)
{
    struct core_cpus set = {0};
    for (unsigned cpu = 0; from != NULL && cpu < CORE_CPUS_MAX; cpu++) {
        if (hwloc_bitmap_isset(from, cpu)) {
            core_cpus_add(&set, cpu);
        }
    }
    return set;
}

static void read_nodes(hwloc_topology_t machine, struct core_topo *topo)
{
    hwloc_obj_t found = NULL;
    while ((found = hwloc_get_next_obj_by_type(machine, HWLOC_OBJ_NUMANODE, found)) != NULL) {
        struct core_topo_node *node = core_topo_node_add(topo, (int)found->os_index);
        if (node != NULL) {
            node->bytes = found->attr->numanode.local_memory;
            node->cpus = cpus_of(found->cpuset);
        }
    }
}

static void read_cpus(hwloc_topology_t machine, struct core_topo *topo)
{
    hwloc_obj_t found = NULL;
    while ((found = hwloc_get_next_obj_by_type(machine, HWLOC_OBJ_PU, found)) != NULL) {
        if (found->os_index >= CORE_CPUS_MAX) {
            continue;
        }
        core_cpus_add(&topo->cpus, found->os_index);
        hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(machine, HWLOC_OBJ_CORE, found);
        if (core != NULL && core->logical_index < CORE_CPUS_MAX) {
            int first = hwloc_bitmap_first(core->cpuset);
            topo->core_of[found->os_index] = (uint16_t)(first >= 0 ? first : (int)found->os_index);
        }
    }
}

/* Returns the node of an I/O object; -1: none or several. */
static int node_beside(hwloc_topology_t machine, hwloc_obj_t device)
{
    hwloc_obj_t parent = hwloc_get_non_io_ancestor_obj(machine, device);
    if (parent == NULL || parent->nodeset == NULL || hwloc_bitmap_weight(parent->nodeset) != 1) {
        return -1;
    }
    return hwloc_bitmap_first(parent->nodeset);
}

static void write_bus(hwloc_obj_t device, char *bus, size_t bytes)
{
    const struct hwloc_pcidev_attr_s *at = &device->attr->pcidev;
    snprintf(bus, bytes, "%04x:%02x:%02x.%x", (unsigned)at->domain, at->bus, at->dev, at->func);
}

static void read_devices(hwloc_topology_t machine, struct core_topo *topo)
{
    hwloc_obj_t found = NULL;
    while ((found = hwloc_get_next_pcidev(machine, found)) != NULL) {
        unsigned class = found->attr->pcidev.class_id >> 8;
        if (class != PCI_CLASS_DISPLAY && class != PCI_CLASS_ACCELERATOR) {
            continue;
        }
        char bus[32];
        write_bus(found, bus, sizeof bus);
        struct core_topo_device *gpu = core_topo_device_add(topo, CORE_TOPO_GPU, bus);
        if (gpu != NULL) {
            snprintf(gpu->bus, sizeof gpu->bus, "%.15s", bus);
            gpu->node = node_beside(machine, found);
        }
    }
    while ((found = hwloc_get_next_osdev(machine, found)) != NULL) {
        if (found->attr->osdev.type != HWLOC_OBJ_OSDEV_BLOCK || found->name == NULL ||
            !core_topo_is_drive(found->name)) {
            continue;
        }
        struct core_topo_device *drive = core_topo_device_add(topo, CORE_TOPO_DRIVE, found->name);
        if (drive == NULL) {
            return;
        }
        drive->node = node_beside(machine, found);
        if (found->parent != NULL && found->parent->type == HWLOC_OBJ_PCI_DEVICE) {
            char bus[32];
            write_bus(found->parent, bus, sizeof bus);
            snprintf(drive->bus, sizeof drive->bus, "%.15s", bus);
        }
    }
}

static int load(hwloc_topology_t machine, enum core_topo_from from, const char *text)
{
    if (from == CORE_TOPO_XML && hwloc_topology_set_xml(machine, text) != 0) {
        return core_err_set(-EINVAL, "cannot read %s as the XML description of a machine: %s", text,
                            strerror(errno));
    }
    if (from == CORE_TOPO_SYNTHETIC && hwloc_topology_set_synthetic(machine, text) != 0) {
        return core_err_set(
            -EINVAL, "\"%s\" does not describe a machine (example: \"pack:2 core:8 pu:2\")", text);
    }
    /* "pci" leaks memory, and /sys has its data; the others would start a graphics driver. */
    static const char *const drivers[] = {"cuda",      "nvml", "opencl", "rsmi",
                                          "levelzero", "gl",   "pci"};
    for (size_t i = 0; i < sizeof drivers / sizeof drivers[0]; i++) {
        hwloc_topology_set_components(machine, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                      drivers[i]);
    }
    hwloc_topology_set_io_types_filter(machine, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    if (hwloc_topology_load(machine) != 0) {
        return core_err_set(-EINVAL, "hwloc cannot read %s: %s",
                            from == CORE_TOPO_LIVE ? "this machine" : text, strerror(errno));
    }
    return 0;
}

int core_topo_read_hwloc(enum core_topo_from from, const char *text, struct core_topo *topo)
{
    hwloc_topology_t machine;
    if (hwloc_topology_init(&machine) != 0) {
        return core_err_set(-ENOMEM, "hwloc cannot start: %s", strerror(errno));
    }
    int rc = load(machine, from, text);
    if (rc == 0) {
        unsigned version = hwloc_get_api_version();
        snprintf(topo->source, sizeof topo->source, "hwloc %u.%u", version >> 16,
                 version >> 8 & 255);
        read_nodes(machine, topo);
        read_cpus(machine, topo);
        read_devices(machine, topo);
    }
    hwloc_topology_destroy(machine);
    return rc;
}
