/* numa.c: the NUMA nodes, and whether this build can place memory on them. No state. */
#include "core/base/mem_limits.h"
#include "core/base/sysfile.h"
#include "offload/doctor/doctor.h"

#include <errno.h>
#include <stdio.h>

static const char topic[] = "numa";

/* The kernel's page migration works against tide's placement. */
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
               blind ? "%u nodes (%s), but this build has no libnuma and cannot place memory"
                     : "%u nodes (%s)",
               count, list);
    say_balancing(doctor);
}
