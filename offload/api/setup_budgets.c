/* setup_budgets.c: the memory that a run may use. */
#include <inttypes.h>

#include "core/base/log.h"
#include "core/base/mem_limits.h"
#include "core/dev/dev.h"
#include "offload/api/setup_parts.h"
#include "offload/run/runtime.h"

/* The process's own memory varies by less than this between starts. */
static const uint64_t advice_spare_bytes = UINT64_C(2) << 20;

/* Bytes left to other programs if no budget is given. */
static uint64_t spare_bytes(uint64_t usable)
{
    return usable > UINT64_C(4) * SETUP_RESERVE_BYTES ? SETUP_RESERVE_BYTES : usable / 16;
}

/* Missing budgets become the memory of one node of the machine's file. */
static void take_machine_budgets(struct setup *setup)
{
    const struct run_machine *machine = &setup->machine;
    struct plan_budgets *budgets = &setup->options.budgets;
    const uint64_t host = (uint64_t)machine->host_bytes;
    const uint64_t usable = host - spare_bytes(host);
    const uint64_t card = (uint64_t)machine->device_bytes;
    const uint32_t local = setup->options.local;
    if (!machine->card && (budgets->device_bytes == 0 || budgets->host_bytes == 0)) {
        budgets->joint_bytes = usable;
    }
    if (budgets->device_bytes == 0) {
        budgets->device_bytes = machine->card ? (card - spare_bytes(card)) * local : usable;
    }
    if (budgets->host_bytes == 0) {
        budgets->host_bytes = usable;
    }
    setup->options.card_bytes = card;
}

static int find_budgets(struct setup *setup)
{
    const struct tide_engine_options *given = &setup->given;
    struct plan_budgets *budgets = &setup->options.budgets;
    struct core_mem_limits limits;
    int rc = core_mem_limits("", &limits);
    if (rc != 0) {
        return rc;
    }
    const uint64_t used = run_runtime_used_bytes();
    const uint64_t usable = limits.usable_bytes + used;
    const uint64_t spare = spare_bytes(usable);
    budgets->device_is_host = dev_is_cpu(setup->options.device);
    budgets->host_data_bytes = given->application_bytes;
    budgets->host_taken_bytes = run_runtime_bytes(setup->model->block_count, &setup->options) +
                                given->application_bytes;
    budgets->advice_spare_bytes = advice_spare_bytes;
    budgets->device_bytes = given->device_bytes;
    budgets->host_bytes = given->host_bytes;
    if (given->machine != NULL) {
        take_machine_budgets(setup);
        return 0;
    }
    if (budgets->device_is_host) {
        if (given->device_bytes == 0 || given->host_bytes == 0) {
            budgets->joint_bytes = usable - spare;
        }
        if (given->device_bytes == 0) {
            budgets->device_bytes = usable - spare;
        }
    } else if (given->device_bytes == 0) {
        rc = run_runtime_card_bytes(setup->options.device, &budgets->device_bytes,
                                    &setup->options.card_bytes);
        if (rc != 0) {
            return rc;
        }
        if (budgets->device_bytes < setup->options.card_bytes / 2) {
            core_log(CORE_LOG_WARN,
                     "other programs use most of %s: %.1f of %.1f GB are free; the loss is planned "
                     "as if all were free: set device_bytes (--device-memory) to limit it",
                     setup->options.device, (double)budgets->device_bytes / 1e9,
                     (double)setup->options.card_bytes / 1e9);
        }
        budgets->device_bytes *= setup->options.local; /* each rank has a GPU */
    }
    if (given->host_bytes == 0) {
        budgets->host_bytes = usable - spare;
    }
    if (given->device_bytes + given->host_bytes > limits.total_bytes && budgets->device_is_host) {
        core_log(CORE_LOG_WARN,
                 "the budgets of DEVICE and HOST, %" PRIu64 " and %" PRIu64
                 " bytes, exceed the machine's %" PRIu64,
                 given->device_bytes, given->host_bytes, limits.total_bytes);
    }
    return 0;
}

/* Ranks share a budget. Memory taken before the plan is divided among ranks that are threads, not
 * among processes. */
static void share_budgets(struct setup *setup, uint64_t given_store_bytes)
{
    struct run_options *options = &setup->options;
    struct plan_budgets *budgets = &options->budgets;
    uint64_t *const shared[] = {&budgets->device_bytes, &budgets->host_bytes, &budgets->joint_bytes,
                                &budgets->host_taken_bytes, &budgets->host_data_bytes};
    for (size_t i = 0; i < (setup->peers == NULL ? 5 : 3); i++) {
        *shared[i] /= options->local;
    }
    for (unsigned i = 0; i < options->store_count; i++) {
        const uint64_t all = options->stores[i].bytes;
        options->stores[i].bytes = all > 0 && all < options->local ? 1 : all / options->local;
    }
    budgets->store_bytes = given_store_bytes > 0
                               ? given_store_bytes / options->local
                               : store_capacity(options->stores, options->store_count);
}

int setup_fill_budgets(struct setup *setup)
{
    const int rc = find_budgets(setup);
    if (rc == 0) {
        share_budgets(setup, (uint64_t)setup->machine.store_bytes);
    }
    return rc;
}

uint64_t setup_host_bytes(uint64_t given)
{
    struct core_mem_limits limits;
    if (given > 0) {
        return given;
    }
    return core_mem_limits("", &limits) == 0
               ? limits.usable_bytes - spare_bytes(limits.usable_bytes)
               : 0;
}
