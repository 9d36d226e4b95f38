/* runtime.c: reads /proc/self/status, and adds measured constants. */
#include "offload/run/runtime.h"

#include <stdatomic.h>

#include "core/base/sysfile.h"
#include "core/dev/dev.h"
#include "offload/store/flow.h"

enum { STATUS_BYTES = 8192 };

/* threads' stacks and tables, oneDNN's code and caches, rings */
static const uint64_t libraries_bytes = UINT64_C(28) << 20;
/* A smaller program counts as this much, so that its plans are the same. */
static const uint64_t least_base_bytes = UINT64_C(8) << 20;
static const uint64_t block_bytes = 96 << 10; /* for a block: tapes, tables, extents */
static const uint64_t group_bytes = 6 << 10;  /* for a block and a group of micro-batches */

/* Adds hugetlb pages to the bytes of `key` in /proc/self/status. */
static uint64_t status_bytes(const char *key)
{
    char text[STATUS_BYTES];
    uint64_t resident = 0;
    uint64_t huge = 0;
    if (core_sysfile_text(text, sizeof text, "", "/proc/self/status") < 0) {
        return 0;
    }
    (void)core_sysfile_field(text, key, &resident);
    (void)core_sysfile_field(text, "HugetlbPages:", &huge);
    return resident + huge;
}

uint64_t run_runtime_used_bytes(void)
{
    return status_bytes("VmRSS:");
}

uint64_t run_runtime_peak_bytes(void)
{
    return status_bytes("VmHWM:");
}

/* Read once, so that an engine's plan equals an earlier one. Concurrent callers get the first one's
 * value. */
static uint64_t base_bytes(void)
{
    static _Atomic uint64_t known;
    uint64_t found = atomic_load_explicit(&known, memory_order_relaxed);
    if (found == 0) {
        uint64_t nothing = 0;
        found = run_runtime_used_bytes();
        found = found > least_base_bytes ? found : least_base_bytes;
        found = atomic_compare_exchange_strong(&known, &nothing, found) ? found : nothing;
    }
    return found;
}

uint64_t run_runtime_bytes(uint32_t block_count, const struct run_options *options)
{
    const uint64_t saves = options->wishes.saves ? STORE_FLOW_BYTES : 0;
    const uint32_t groups = options->micro_batches < RUN_OPTIONS_GROUPS ? options->micro_batches
                                                                        : RUN_OPTIONS_GROUPS;
    return base_bytes() + libraries_bytes + saves +
           block_count * (block_bytes + groups * group_bytes);
}

int run_runtime_card_bytes(const char *device, uint64_t *budget_bytes, uint64_t *card_bytes)
{
    struct dev_device *card = NULL;
    struct dev_memory memory;
    int rc = dev_open(device, NULL, &card);
    if (rc != 0) {
        return rc;
    }
    dev_memory_report(card, &memory);
    *budget_bytes = memory.budget_bytes;
    *card_bytes = dev_properties(card)->memory_total_bytes;
    dev_close(card);
    return 0;
}
