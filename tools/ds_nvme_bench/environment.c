/* environment.c: reads uname, /proc and /sys. */
#include "tools/ds_nvme_bench/environment.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "aio/backend.h"
#include "core/base/cpus.h"
#include "core/base/mem_limits.h"
#include "core/base/sysfile.h"

static void read_cpu(char *out, size_t bytes)
{
    char text[8192];
    snprintf(out, bytes, "unknown");
    if (core_sysfile_text(text, sizeof text, "", "/proc/cpuinfo") <= 0) {
        return;
    }
    const char *line = strstr(text, "model name");
    const char *value = line != NULL ? strchr(line, ':') : NULL;
    if (value != NULL) {
        size_t length = strcspn(value + 2, "\n");
        snprintf(out, bytes, "%.*s", (int)length, value + 2);
    }
}

void bench_environment_read(struct bench_environment *out)
{
    struct bench_environment made = {.processors = 0};
    struct utsname name;
    struct core_cpus cpus;
    struct core_mem_limits limits;
    struct core_hugetlb huge;
    if (uname(&name) == 0) {
        snprintf(made.host, sizeof made.host, "%s", name.nodename);
        snprintf(made.kernel, sizeof made.kernel, "%.64s %.64s", name.sysname, name.release);
    }
    read_cpu(made.cpu, sizeof made.cpu);
    made.processors = core_cpus_allowed(&cpus) == 0 ? core_cpus_count(&cpus) : 0;
    if (core_mem_limits("", &limits) == 0) {
        made.memory_bytes = limits.total_bytes;
        made.memlock_bytes = limits.memlock_ignored ? CORE_MEM_UNLIMITED : limits.memlock_bytes;
    }
    if (core_mem_hugetlb("", -1, 2 << 20, &huge) == 0) {
        made.huge_pages_free = huge.free_count;
    }
    if (core_sysfile_choice(made.huge_pages, sizeof made.huge_pages, "",
                            "/sys/kernel/mm/transparent_hugepage/enabled") != 0) {
        snprintf(made.huge_pages, sizeof made.huge_pages, "unknown");
    }
    aio_probe_uring(made.io_uring, sizeof made.io_uring);
    *out = made;
}

/* Reads the options of a mount from mountinfo: "36 35 98:0 /root /mount/point rw,noatime ..." */
static void read_mount(unsigned major, unsigned minor, char *out, size_t bytes)
{
    FILE *file = fopen("/proc/self/mountinfo", "r");
    char line[4096];
    out[0] = '\0';
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        unsigned m = 0;
        unsigned n = 0;
        char options[256] = "";
        if (sscanf(line, "%*d %*d %u:%u %*s %*s %255s", &m, &n, options) == 3 && m == major &&
            n == minor) {
            snprintf(out, bytes, "%.*s", (int)bytes - 1, options);
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}

void bench_device_read(const struct bench_target *target, struct bench_device *out)
{
    struct stat info;
    *out = (struct bench_device){.found = false};
    if (fstat(target->fd, &info) != 0) {
        return;
    }
    out->found = core_block_device_find("", major(info.st_dev), minor(info.st_dev), &out->block) ==
                 0;
    read_mount(major(info.st_dev), minor(info.st_dev), out->mount, sizeof out->mount);
}
