/* mem_limits.c: reads /proc/meminfo, the cgroup's files and the process's own limits. */
#include "core/base/mem_limits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "core/base/err.h"
#include "core/base/sysfile.h"

enum { CAP_IPC_LOCK_BIT = 14, PATH_BYTES = 256, TEXT_BYTES = 16384 };

struct found {
    uint64_t limit_bytes; /* the lowest limit of the visited cgroups */
    uint64_t left_bytes;  /* the lowest remainder, maybe of another cgroup */
    uint64_t used_bytes;  /* used in the cgroup of limit_bytes */
    char path[PATH_BYTES];
};

/* "No limit" is "max" in cgroup v2, a number beyond any memory in v1. */
static uint64_t limit_from(const char *text)
{
    if (*text < '0' || *text > '9') {
        return CORE_MEM_UNLIMITED;
    }
    uint64_t value = strtoull(text, NULL, 10);
    return value >= UINT64_C(1) << 60 ? CORE_MEM_UNLIMITED : value;
}

struct version {
    const char *mount;
    const char *limit;
    const char *used;
    const char *cache; /* page cache in memory.stat that can be dropped */
};

static void look_at(const char *root, const struct version *version, const char *path,
                    struct found *found)
{
    char text[TEXT_BYTES];
    if (core_sysfile_text(text, sizeof text, root, "%s%s/%s", version->mount, path,
                          version->limit) < 0) {
        return;
    }
    uint64_t limit = limit_from(text);
    if (limit == CORE_MEM_UNLIMITED) {
        return;
    }
    uint64_t used = 0;
    uint64_t cache = 0;
    if (core_sysfile_text(text, sizeof text, root, "%s%s/%s", version->mount, path, version->used) >
        0) {
        used = strtoull(text, NULL, 10);
    }
    if (core_sysfile_text(text, sizeof text, root, "%s%s/memory.stat", version->mount, path) > 0) {
        core_sysfile_field(text, version->cache, &cache);
    }
    used = used > cache ? used - cache : 0;
    uint64_t left = limit > used ? limit - used : 0;
    found->left_bytes = left < found->left_bytes ? left : found->left_bytes;
    if (limit < found->limit_bytes) {
        found->limit_bytes = limit;
        found->used_bytes = used;
        snprintf(found->path, sizeof found->path, "%s", path[0] != '\0' ? path : "/");
    }
}

/* Visits the cgroup and those above it, as far as they are mounted. */
static void walk_up(const char *root, const struct version *version, const char *path,
                    struct found *found)
{
    char at[PATH_BYTES];
    snprintf(at, sizeof at, "%s", strcmp(path, "/") == 0 ? "" : path);
    for (;;) {
        look_at(root, version, at, found);
        char *slash = strrchr(at, '/');
        if (slash == NULL) {
            return;
        }
        *slash = '\0';
    }
}

/* Lines of /proc/self/cgroup are "id:controllers:path"; v2 has id 0 and no controllers. */
static void look_at_cgroups(const char *root, struct found *found)
{
    static const struct version v1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                      "memory.usage_in_bytes", "total_inactive_file"};
    static const struct version v2 = {"/sys/fs/cgroup", "memory.max", "memory.current",
                                      "inactive_file"};
    char text[TEXT_BYTES];
    if (core_sysfile_text(text, sizeof text, root, "/proc/self/cgroup") < 0) {
        return;
    }
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        char *list = strchr(line, ':');
        char *path = list != NULL ? strchr(list + 1, ':') : NULL;
        if (path == NULL) {
            continue;
        }
        *path++ = '\0';
        list++;
        if (*list == '\0') {
            walk_up(root, &v2, path, found);
        } else if (strstr(list, "memory") != NULL) {
            walk_up(root, &v1, path, found);
        }
    }
}

static void look_at_process(const char *root, struct core_mem_limits *limits)
{
    struct rlimit memlock;
    limits->memlock_bytes = CORE_MEM_UNLIMITED;
    if (getrlimit(RLIMIT_MEMLOCK, &memlock) == 0 && memlock.rlim_cur != RLIM_INFINITY) {
        limits->memlock_bytes = memlock.rlim_cur;
    }
    char text[TEXT_BYTES];
    if (core_sysfile_text(text, sizeof text, root, "/proc/self/status") < 0) {
        return;
    }
    core_sysfile_field(text, "VmLck:", &limits->locked_bytes);
    core_sysfile_field(text, "VmPin:", &limits->pinned_bytes);
    const char *mask = strstr(text, "\nCapEff:");
    if (mask != NULL) {
        uint64_t bits = strtoull(mask + 8, NULL, 16);
        limits->memlock_ignored = (bits >> CAP_IPC_LOCK_BIT & 1) != 0;
    }
}

int core_mem_limits(const char *root, struct core_mem_limits *out)
{
    char text[TEXT_BYTES];
    int rc = core_sysfile_text(text, sizeof text, root, "/proc/meminfo");
    if (rc < 0) {
        return core_err_set(rc, "%s/proc/meminfo cannot be read: %s", root, strerror(-rc));
    }
    struct core_mem_limits limits = {.total_bytes = CORE_MEM_UNLIMITED,
                                     .available_bytes = CORE_MEM_UNLIMITED};
    core_sysfile_field(text, "MemTotal:", &limits.total_bytes);
    if (core_sysfile_field(text, "MemAvailable:", &limits.available_bytes) != 0) {
        core_sysfile_field(text, "MemFree:", &limits.available_bytes);
    }
    struct found found = {.limit_bytes = CORE_MEM_UNLIMITED, .left_bytes = CORE_MEM_UNLIMITED};
    look_at_cgroups(root, &found);
    limits.cgroup_bytes = found.limit_bytes;
    limits.cgroup_used_bytes = found.used_bytes;
    snprintf(limits.cgroup, sizeof limits.cgroup, "%s", found.path);
    limits.usable_bytes = found.left_bytes < limits.available_bytes ? found.left_bytes
                                                                    : limits.available_bytes;
    look_at_process(root, &limits);
    *out = limits;
    return 0;
}

uint64_t core_mem_lockable(const struct core_mem_limits *limits)
{
    if (limits->memlock_ignored || limits->memlock_bytes == CORE_MEM_UNLIMITED) {
        return CORE_MEM_UNLIMITED;
    }
    uint64_t taken = limits->locked_bytes > limits->pinned_bytes ? limits->locked_bytes
                                                                 : limits->pinned_bytes;
    return limits->memlock_bytes > taken ? limits->memlock_bytes - taken : 0;
}

int core_mem_hugetlb(const char *root, int node, uint64_t page_bytes, struct core_hugetlb *out)
{
    char folder[PATH_BYTES];
    unsigned long long kib = page_bytes / 1024;
    if (node < 0) {
        snprintf(folder, sizeof folder, "/sys/kernel/mm/hugepages/hugepages-%llukB", kib);
    } else {
        snprintf(folder, sizeof folder,
                 "/sys/devices/system/node/node%d/hugepages/hugepages-%llukB", node, kib);
    }
    int64_t total;
    int64_t unused;
    int64_t reserved = 0;
    if (core_sysfile_number(&total, root, "%s/nr_hugepages", folder) != 0 ||
        core_sysfile_number(&unused, root, "%s/free_hugepages", folder) != 0 || total < 0 ||
        unused < 0) {
        return -ENOENT;
    }
    if (node < 0) {
        core_sysfile_number(&reserved, root, "%s/resv_hugepages", folder);
    }
    *out = (struct core_hugetlb){
        .page_bytes = page_bytes,
        .total_count = (uint64_t)total,
        .free_count = unused > reserved ? (uint64_t)(unused - reserved) : 0,
    };
    return 0;
}

void core_mem_nodes(const char *root, struct core_cpus *out)
{
    struct core_cpus allowed = {0};
    struct core_cpus present = {0};
    char text[TEXT_BYTES];
    if (core_sysfile_text(text, sizeof text, root, "/proc/self/status") > 0) {
        char *list = strstr(text, "\nMems_allowed_list:");
        if (list != NULL) {
            list += strlen("\nMems_allowed_list:");
            list += strspn(list, " \t");
            list[strcspn(list, "\n")] = '\0';
            core_cpus_parse(list, &allowed);
        }
    }
    if (core_sysfile_text(text, sizeof text, root, "/sys/devices/system/node/has_memory") > 0) {
        core_cpus_parse(text, &present);
    }
    struct core_cpus both = {0};
    for (unsigned node = 0; node < CORE_CPUS_MAX; node++) {
        bool here = core_cpus_count(&present) == 0 || core_cpus_has(&present, node);
        bool ours = core_cpus_count(&allowed) == 0 ? node == 0 || core_cpus_count(&present) != 0
                                                   : core_cpus_has(&allowed, node);
        if (here && ours) {
            core_cpus_add(&both, node);
        }
    }
    *out = both;
}
