/* topo_read.c: reads the topology from a source, sorts and checks it. */
#include "core/base/topo_read.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/mem_limits.h"

/* ---- normalising ---- */

static int by_number(const void *a, const void *b)
{
    const struct core_topo_node *left = a;
    const struct core_topo_node *right = b;
    return (left->number > right->number) - (left->number < right->number);
}

static int by_name(const void *a, const void *b)
{
    const struct core_topo_device *left = a;
    const struct core_topo_device *right = b;
    return left->kind != right->kind ? (int)left->kind - (int)right->kind
                                     : strcmp(left->name, right->name);
}

static struct core_cpus both(const struct core_cpus *a, const struct core_cpus *b)
{
    struct core_cpus set = {0};
    for (size_t i = 0; i < CORE_CPUS_MAX / 64; i++) {
        set.bits[i] = a->bits[i] & b->bits[i];
    }
    return set;
}

static struct core_cpus without(const struct core_cpus *a, const struct core_cpus *b)
{
    struct core_cpus set = {0};
    for (size_t i = 0; i < CORE_CPUS_MAX / 64; i++) {
        set.bits[i] = a->bits[i] & ~b->bits[i];
    }
    return set;
}

/* A processor belongs to the first node that claims it; if none does, to the first node. */
static void settle_nodes(struct core_topo *topo, const struct core_cpus *allowed)
{
    struct core_cpus left = both(&topo->cpus, allowed);
    topo->cpus = left;
    qsort(topo->nodes, topo->node_count, sizeof topo->nodes[0], by_number);
    for (uint32_t i = 0; i < topo->node_count; i++) {
        topo->nodes[i].cpus = both(&topo->nodes[i].cpus, &left);
        left = without(&left, &topo->nodes[i].cpus);
    }
    for (unsigned cpu = 0; cpu < CORE_CPUS_MAX && topo->node_count > 0; cpu++) {
        if (core_cpus_has(&left, cpu)) {
            core_cpus_add(&topo->nodes[0].cpus, cpu);
        }
    }
}

/* Numbers the cores of the allowed processors, in order of their first processor. */
static void settle_cores(struct core_topo *topo)
{
    static const uint16_t none = CORE_TOPO_NO_CORE;
    uint16_t number_of[CORE_CPUS_MAX];
    for (unsigned i = 0; i < CORE_CPUS_MAX; i++) {
        number_of[i] = none;
    }
    topo->core_count = 0;
    for (unsigned cpu = 0; cpu < CORE_CPUS_MAX; cpu++) {
        uint16_t said = topo->core_of[cpu];
        topo->core_of[cpu] = none;
        if (!core_cpus_has(&topo->cpus, cpu)) {
            continue;
        }
        uint16_t *number = &number_of[said < CORE_CPUS_MAX ? said : cpu];
        if (*number == none) {
            *number = (uint16_t)topo->core_count++;
        }
        topo->core_of[cpu] = *number;
    }
}

/* Sorts devices, removes duplicates, and replaces unknown nodes by -1. A single node has all
 * devices. */
static void settle_devices(struct core_topo *topo)
{
    uint32_t told = topo->device_count;
    qsort(topo->devices, told, sizeof topo->devices[0], by_name);
    topo->device_count = 0;
    for (uint32_t i = 0; i < told; i++) {
        struct core_topo_device *device = &topo->devices[topo->device_count];
        if (topo->device_count > 0 && by_name(device - 1, &topo->devices[i]) == 0) {
            continue;
        }
        *device = topo->devices[i];
        topo->device_count++;
        if (topo->node_count == 1) {
            device->node = topo->nodes[0].number;
        } else if (core_topo_node_find(topo, device->node) == NULL) {
            device->node = -1;
        }
    }
}

/* ---- checking ---- */

static int check_nodes(const struct core_topo *topo)
{
    struct core_cpus seen = {0};
    unsigned count = 0;
    if (topo->node_count == 0 || topo->node_count > CORE_TOPO_NODES_MAX) {
        return core_err_set(-EINVAL, "%s describes a machine of %u nodes", topo->source,
                            topo->node_count);
    }
    for (uint32_t i = 0; i < topo->node_count; i++) {
        const struct core_topo_node *node = &topo->nodes[i];
        if (node->number < 0 || (i > 0 && node->number <= topo->nodes[i - 1].number)) {
            return core_err_set(-EINVAL, "%s: node %d is listed twice or out of order",
                                topo->source, node->number);
        }
        struct core_cpus shared = both(&seen, &node->cpus);
        struct core_cpus strange = without(&node->cpus, &topo->cpus);
        if (core_cpus_count(&shared) != 0 || core_cpus_count(&strange) != 0) {
            return core_err_set(-EINVAL,
                                "%s: node %d has %u processors that belong to another node, and %u "
                                "that may not be used",
                                topo->source, node->number, core_cpus_count(&shared),
                                core_cpus_count(&strange));
        }
        count += core_cpus_count(&node->cpus);
        for (size_t word = 0; word < CORE_CPUS_MAX / 64; word++) {
            seen.bits[word] |= node->cpus.bits[word];
        }
    }
    if (count == 0 || count != core_cpus_count(&topo->cpus)) {
        return core_err_set(-EINVAL, "%s: %u processors may be used, but the nodes have %u",
                            topo->source, core_cpus_count(&topo->cpus), count);
    }
    return 0;
}

static int check_cores(const struct core_topo *topo)
{
    for (unsigned cpu = 0; cpu < CORE_CPUS_MAX; cpu++) {
        bool known = topo->core_of[cpu] < topo->core_count;
        if (known != core_cpus_has(&topo->cpus, cpu)) {
            return core_err_set(-EINVAL, "%s: processor %u is on core %u, and there are %u cores",
                                topo->source, cpu, topo->core_of[cpu], topo->core_count);
        }
    }
    return 0;
}

int core_topo_check(const struct core_topo *topo)
{
    int rc = check_nodes(topo);
    if (rc != 0) {
        return rc;
    }
    rc = check_cores(topo);
    if (rc != 0) {
        return rc;
    }
    for (uint32_t i = 0; i < topo->device_count; i++) {
        const struct core_topo_device *device = &topo->devices[i];
        if (device->node != -1 && core_topo_node_find(topo, device->node) == NULL) {
            return core_err_set(-EINVAL, "%s: %s is attached to node %d, which does not exist",
                                topo->source, device->name, device->node);
        }
        if (i > 0 && by_name(device - 1, device) >= 0) {
            return core_err_set(-EINVAL, "%s: device %s is listed twice or out of order",
                                topo->source, device->name);
        }
    }
    return 0;
}

/* ---- reading ---- */

static int read_source(enum core_topo_from from, const char *text, struct core_topo *topo)
{
    if (from == CORE_TOPO_SYSFS) {
        return core_topo_read_sysfs(text, topo);
    }
#if HAVE_HWLOC
    int rc = core_topo_read_hwloc(from, text, topo);
    if (from != CORE_TOPO_LIVE || rc == 0) {
        return rc;
    }
    topo->node_count = 0;
    topo->device_count = 0;
#else
    if (from != CORE_TOPO_LIVE) {
        return core_err_set(-ENOTSUP, "this build has no hwloc: \"%s\" cannot be read",
                            text != NULL ? text : "");
    }
#endif
    return core_topo_read_sysfs("", topo);
}

int core_topo_create(enum core_topo_from from, const char *text, const struct core_cpus *allowed,
                     struct core_topo **out)
{
    struct core_cpus all;
    memset(&all, 0xff, sizeof all);
    bool here = from == CORE_TOPO_LIVE || (from == CORE_TOPO_SYSFS && text[0] == '\0');
    if (allowed == NULL && here) {
        int rc = core_cpus_allowed(&all);
        if (rc != 0) {
            return rc;
        }
    }
    struct core_topo *topo = calloc(1, sizeof *topo);
    if (topo == NULL) {
        return core_err_set(-ENOMEM, "no memory for the description of the machine");
    }
    memset(topo->core_of, 0xff, sizeof topo->core_of);
    int rc = read_source(from, text, topo);
    if (rc == 0) {
        settle_nodes(topo, allowed != NULL ? allowed : &all);
        settle_cores(topo);
        settle_devices(topo);
        rc = core_topo_check(topo);
    }
    if (rc != 0) {
        core_topo_destroy(topo);
        return rc;
    }
    *out = topo;
    return 0;
}

void core_topo_destroy(struct core_topo *topo)
{
    free(topo);
}
