/* numa.c: the NUMA nodes, and whether this build can use them. No state. */
#include "core/base/mem_limits.h"
#include "core/base/sysfile.h"
#include "core/base/topo_read.h"
#include "offload/doctor/doctor.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char topic[] = "numa";

/* Appends to a text, which may be cut. */
__attribute__((format(printf, 2, 3))) static void add(char text[DOCTOR_TEXT_BYTES],
                                                      const char *format, ...)
{
    const size_t at = strlen(text);
    va_list list;
    va_start(list, format);
    vsnprintf(text + at, DOCTOR_TEXT_BYTES - at, format, list);
    va_end(list);
}

/* The kernel's page migration counteracts tide's placement. */
static void say_balancing(struct doctor *doctor)
{
    int64_t on = 0;
    if (core_sysfile_number(&on, doctor->root, "/proc/sys/kernel/numa_balancing") == 0 && on != 0) {
        doctor_say(doctor,
                   &(struct doctor_line){.verdict = TIDE_WARN,
                                         .topic = topic,
                                         .cure = "sudo sysctl kernel.numa_balancing=0"},
                   "the kernel moves pages between nodes by itself, at the cost of page faults");
    }
}

/* Reports a single rank's nodes, and the known nodes of GPUs and drives. */
static void say_place(struct doctor *doctor)
{
    struct core_topo *topo = NULL;
    struct core_topo_place place;
    char text[DOCTOR_TEXT_BYTES] = "";
    const bool live = doctor->root[0] == '\0';
    int rc = core_topo_create(live ? CORE_TOPO_LIVE : CORE_TOPO_SYSFS, doctor->root, NULL, &topo);
    if (rc == 0) {
        rc = core_topo_decide(topo, &(struct core_topo_wish){.ranks = 1}, &place);
    }
    for (uint32_t i = 0; rc == 0 && i < place.share_count; i++) {
        char cpus[128];
        core_cpus_print(&place.shares[i].cpus, cpus, sizeof cpus);
        add(text, "%snode %d with processors %s", i > 0 ? ", " : "", place.shares[i].node, cpus);
    }
    for (uint32_t i = 0; rc == 0 && i < topo->device_count; i++) {
        const struct core_topo_device *device = &topo->devices[i];
        if (device->node >= 0) {
            add(text, "; %s %s on node %d", device->kind == CORE_TOPO_GPU ? "GPU" : "drive",
                device->name, device->node);
        }
    }
    if (rc == 0) {
        doctor_say(doctor, &(struct doctor_line){.topic = topic},
                   "chunks of the optimizer take turns on %s", text);
    }
    core_topo_destroy(topo);
}

void doctor_numa(struct doctor *doctor)
{
    struct core_cpus nodes;
    core_mem_nodes(doctor->root, &nodes);
    unsigned count = core_cpus_count(&nodes);
    if (count < 2) {
        doctor_say(doctor, &(struct doctor_line){.topic = topic, .figure = "nodes", .value = 1.0},
                   "one node: no placement needed");
        return;
    }
    char list[256];
    core_cpus_print(&nodes, list, sizeof list);
    bool blind = core_mem_node_of(&nodes) == -ENOTSUP;
    doctor_say(doctor,
               &(struct doctor_line){
                   .verdict = blind ? TIDE_WARN : TIDE_OK,
                   .topic = topic,
                   .cure = blind ? "sudo apt-get install libnuma-dev, then build again" : NULL,
                   .figure = "nodes",
                   .value = (double)count},
               blind ? "%u nodes (%s), but this build has no libnuma and cannot see where memory is"
                     : "%u nodes (%s)",
               count, list);
    say_place(doctor);
    say_balancing(doctor);
}
