/* runtime.c: /proc/self/status, and what was measured of the rest. */
#include "offload/run/runtime.h"

#include "core/base/kfile.h"
#include "offload/model/model.h"
#include "offload/store/flow.h"

enum { STATUS_BYTES = 8192 };

/* Beyond what is resident before: stacks and tables of threads, oneDNN's code and caches, rings. */
static const uint64_t libraries_bytes = UINT64_C(28) << 20;
static const uint64_t block_bytes = 96 << 10; /* tapes, tables and extents of a block */

static uint64_t status(const char *key)
{
    char text[STATUS_BYTES];
    uint64_t resident = 0;
    uint64_t huge = 0;
    if (core_kfile_text(text, sizeof text, "", "/proc/self/status") < 0) {
        return 0;
    }
    (void)core_kfile_field(text, key, &resident);
    (void)core_kfile_field(text, "HugetlbPages:", &huge);
    return resident + huge;
}

uint64_t run_runtime_used_bytes(void)
{
    return status("VmRSS:");
}

uint64_t run_runtime_peak_bytes(void)
{
    return status("VmHWM:");
}

uint64_t run_runtime_bytes(const struct model *model, const struct run_options *options)
{
    const uint64_t saves = options->wishes.saves ? STORE_FLOW_BYTES : 0;
    return run_runtime_used_bytes() + libraries_bytes + model->block_count * block_bytes + saves;
}
