/* pages.c: huge pages and the limit of locked memory. Owns one trial mapping while it runs. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "core/base/mem.h"
#include "core/base/mem_limits.h"
#include "core/base/sysfile.h"
#include "offload/doctor/doctor.h"

#define MIB                (UINT64_C(1) << 20)
#define GIB                (UINT64_C(1) << 30)
#define TRIAL_BYTES        (16 * MIB)
#define MEMLOCK_GOOD_BYTES GIB

static const char thp_path[] = "/sys/kernel/mm/transparent_hugepage/enabled";

/* At least half of the mapping must be huge pages. Needs no /sys. */
static bool trial_is_huge(void)
{
    struct core_region_options options = {
        .name = "doctor", .bytes = TRIAL_BYTES, .pages = CORE_PAGES_THP};
    struct core_region region = {0};
    if (core_region_alloc(&options, &region) != 0) {
        return false;
    }
    bool huge = region.huge_bytes >= TRIAL_BYTES / 2;
    core_region_free(&region);
    return huge;
}

static void say_transparent(struct doctor *doctor, uint64_t reserved_bytes)
{
    char choice[32] = "";
    bool known = core_sysfile_choice(choice, sizeof choice, doctor->root, thp_path) == 0;
    bool on = known && strcmp(choice, "never") != 0;
    bool huge = (on || !known) && trial_is_huge();
    if (huge) {
        doctor_say(doctor, &(struct doctor_line){.topic = "pages"},
                   "transparent huge pages: %s; a test allocation got them",
                   known ? choice : "they work");
        return;
    }
    bool served = reserved_bytes >= GIB;
    doctor_say(doctor,
               &(struct doctor_line){.verdict = served ? TIDE_OK : TIDE_WARN,
                                     .topic = "pages",
                                     .cure = served ? NULL
                                             : on
                                                 ? "free memory in large pieces: echo 1 | sudo tee "
                                                   "/proc/sys/vm/compact_memory"
                                                 : "echo madvise | sudo tee "
                                                   "/sys/kernel/mm/transparent_hugepage/enabled"},
               "transparent huge pages: %s; a test allocation got %s", known ? choice : "unknown",
               on ? "small pages only" : "none");
}

static uint64_t say_reserved(struct doctor *doctor)
{
    struct core_hugetlb pool;
    if (core_mem_hugetlb(doctor->root, -1, 2 * MIB, &pool) != 0 || pool.total_count == 0) {
        doctor_say(doctor, &(struct doctor_line){.topic = "pages"},
                   "no 2 MiB pages are reserved; transparent huge pages are sufficient");
        return 0;
    }
    uint64_t free_bytes = pool.free_count * pool.page_bytes;
    char total[DOCTOR_SIZE_BYTES];
    char left[DOCTOR_SIZE_BYTES];
    doctor_say(doctor,
               &(struct doctor_line){
                   .topic = "pages", .figure = "reserved_bytes", .value = (double)free_bytes},
               "%s of %s reserved in 2 MiB pages are free", doctor_size(free_bytes, left),
               doctor_size(pool.total_count * pool.page_bytes, total));
    return free_bytes;
}

void doctor_pages(struct doctor *doctor)
{
    say_transparent(doctor, say_reserved(doctor));
}

const char *doctor_memlock_cure(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_max > limit.rlim_cur) {
        return limit.rlim_max == RLIM_INFINITY ? "ulimit -l unlimited" : "ulimit -l $(ulimit -Hl)";
    }
    return "echo \"$USER - memlock unlimited\" | sudo tee /etc/security/limits.d/memlock.conf and "
           "log in again; docker run --ulimit memlock=-1 ...; systemd: LimitMEMLOCK=infinity";
}

void doctor_memlock(struct doctor *doctor)
{
    struct core_mem_limits limits;
    if (core_mem_limits(doctor->root, &limits) != 0) {
        limits = (struct core_mem_limits){0};
        struct rlimit own;
        limits.memlock_bytes = getrlimit(RLIMIT_MEMLOCK, &own) == 0 ? own.rlim_cur : 0;
    }
    uint64_t lockable = core_mem_lockable(&limits);
    char size[DOCTOR_SIZE_BYTES];
    if (lockable >= limits.usable_bytes && limits.usable_bytes > 0) {
        doctor_say(doctor, &(struct doctor_line){.topic = "memlock"},
                   limits.memlock_ignored ? "all memory may be locked (privileged)"
                                          : "all memory may be locked");
        return;
    }
    bool good = lockable >= MEMLOCK_GOOD_BYTES;
    doctor_say(doctor,
               &(struct doctor_line){.verdict = good ? TIDE_OK : TIDE_WARN,
                                     .topic = "memlock",
                                     .cure = good ? NULL : doctor_memlock_cure(),
                                     .figure = "lockable_bytes",
                                     .value = (double)lockable},
               good ? "%s may be locked"
                    : "only %s may be locked: staging buffers are pinned for each transfer instead "
                      "of once",
               doctor_size(lockable, size));
}
