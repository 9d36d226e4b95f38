/* cpu.c: the processor's instruction sets, number and clock. No state. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/cpus.h"
#include "core/base/sysfile.h"
#include "offload/doctor/doctor.h"

static const char topic[] = "cpu";

/* Writes the processor's name, or "processor". */
static void read_product(const char *root, char *product, size_t bytes)
{
    char text[4096];
    snprintf(product, bytes, "processor");
    if (core_sysfile_text(text, sizeof text, root, "/proc/cpuinfo") <= 0) {
        return;
    }
    const char *line = strstr(text, "model name");
    const char *value = line != NULL ? strchr(line, ':') : NULL;
    if (value != NULL) {
        value += strspn(value, ": \t");
        snprintf(product, bytes, "%.*s", (int)strcspn(value, "\n"), value);
    }
}

static void say_flags(struct doctor *doctor)
{
    char product[128];
    char flags[256];
    read_product(doctor->root, product, sizeof product);
    unsigned has = core_cpu_flags(CORE_CPU_ALL);
    core_cpu_flags_print(has, flags, sizeof flags);
    if ((has & (CORE_CPU_AVX2 | CORE_CPU_NEON)) != 0) {
        doctor_say(doctor, &(struct doctor_line){.topic = topic}, "%s: %s", product, flags);
        return;
    }
    doctor_say(
        doctor,
        &(struct doctor_line){.verdict = TIDE_WARN,
                              .topic = topic,
                              .cure = "in a virtual machine pass the host's processor through "
                                      "(qemu: -cpu host); otherwise use a processor with AVX2"},
        "%s has neither AVX2 nor NEON: the update runs one number at a time", product);
}

/* Returns a cgroup's quota in processors (v1 or v2); 0: none. */
static double quota_at(const char *root, const char *folder)
{
    char text[64];
    double quota = 0.0;
    double period = 0.0;
    if (core_sysfile_text(text, sizeof text, root, "/sys/fs/cgroup%s/cpu.max", folder) > 0) {
        return sscanf(text, "%lf %lf", &quota, &period) == 2 && period > 0.0 ? quota / period : 0.0;
    }
    int64_t quota_us = 0;
    int64_t period_us = 0;
    if (core_sysfile_number(&quota_us, root, "/sys/fs/cgroup/cpu%s/cpu.cfs_quota_us", folder) ==
            0 &&
        core_sysfile_number(&period_us, root, "/sys/fs/cgroup/cpu%s/cpu.cfs_period_us", folder) ==
            0 &&
        quota_us > 0 && period_us > 0) {
        return (double)quota_us / (double)period_us;
    }
    return 0.0;
}

/* Reads the folder below the cgroup's mount from a line "0::/path" (v2) or "N:cpu,...:/path"
 * (v1). */
static void read_group(const char *root, char *folder, size_t bytes)
{
    char text[4096];
    folder[0] = '\0';
    if (core_sysfile_text(text, sizeof text, root, "/proc/self/cgroup") <= 0) {
        return;
    }
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        char *names = strchr(line, ':');
        char *path = names != NULL ? strchr(names + 1, ':') : NULL;
        if (path != NULL && (path == names + 1 || strstr(names, "cpu,") != NULL ||
                             strncmp(names, ":cpu:", 5) == 0)) {
            snprintf(folder, bytes, "%s", path + 1);
        }
    }
}

double doctor_cpu_quota(const char *root)
{
    char folder[1024];
    double lowest = 0.0;
    read_group(root, folder, sizeof folder);
    for (;;) {
        if (strcmp(folder, "/") == 0) {
            folder[0] = '\0';
        }
        double quota = quota_at(root, folder);
        if (quota > 0.0 && (lowest <= 0.0 || quota < lowest)) {
            lowest = quota;
        }
        char *slash = strrchr(folder, '/');
        if (slash == NULL) {
            return lowest;
        }
        *slash = '\0';
    }
}

static void say_count(struct doctor *doctor)
{
    struct core_cpus allowed;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned count = core_cpus_allowed(&allowed) == 0 ? core_cpus_count(&allowed) : 1;
    double quota = doctor_cpu_quota(doctor->root);
    if (quota > 0.0 && quota < (double)count) {
        char cure[256];
        snprintf(cure, sizeof cure,
                 "docker run --cpus=%u ..., or sudo systemctl set-property UNIT CPUQuota=%u%%",
                 count, count * 100);
        doctor_say(doctor,
                   &(struct doctor_line){.verdict = TIDE_WARN,
                                         .topic = topic,
                                         .cure = cure,
                                         .figure = "processors",
                                         .value = quota},
                   "the cgroup's quota allows the time of %.2g of %u processors; threads are "
                   "stopped in the middle of their work",
                   quota, count);
        return;
    }
    doctor_say(
        doctor,
        &(struct doctor_line){.topic = topic, .figure = "processors", .value = (double)count},
        "%u of %ld processors may be used, without a quota", count, online);
}

/* Under "powersave", the active drivers of Intel and AMD still raise the clock; their passive ones
 * (intel_cpufreq, amd-pstate) and acpi-cpufreq keep it low. */
static void say_clock(struct doctor *doctor)
{
    char governor[64];
    char driver[64] = "";
    const char *folder = "/sys/devices/system/cpu/cpu0/cpufreq";
    if (core_sysfile_text(governor, sizeof governor, doctor->root, "%s/scaling_governor", folder) <=
        0) {
        return;
    }
    core_sysfile_text(driver, sizeof driver, doctor->root, "%s/scaling_driver", folder);
    bool by_itself = strcmp(driver, "intel_pstate") == 0 || strcmp(driver, "amd-pstate-epp") == 0;
    bool slow = strcmp(governor, "powersave") == 0 && !by_itself;
    doctor_say(
        doctor,
        &(struct doctor_line){.verdict = slow ? TIDE_WARN : TIDE_OK,
                              .topic = topic,
                              .cure = slow ? "sudo cpupower frequency-set -g performance" : NULL},
        slow ? "clock: %s with %s keeps the lowest frequency" : "clock: %s with %s", governor,
        driver);
}

void doctor_cpu(struct doctor *doctor)
{
    say_flags(doctor);
    say_count(doctor);
    say_clock(doctor);
}
