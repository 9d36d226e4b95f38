/* test_fail.c: devices, queues and measurements if an allocation fails. */
#include <errno.h>

#include "core/base/err.h"
#include "core/dev/dev.h"
#include "tests/harness/fail_alloc.h"
#include "tests/harness/test.h"

static int queue_life(void)
{
    static unsigned char page[65536] __attribute__((aligned(65536)));
    struct dev_device *device = NULL;
    struct dev_queue *queue = NULL;
    void *memory = NULL;
    int rc = dev_open("cpu", &(struct dev_options){.memory_bytes = 1 << 16}, &device);
    if (rc != 0) {
        return rc;
    }
    struct dev_queue_options options = {.threads = 3, .scratch_bytes = 100};
    rc = dev_queue_create(device, &options, &queue);
    if (rc == 0) {
        rc = dev_memory_alloc(device, 100, &memory);
    }
    if (rc == 0) {
        rc = dev_host_register(device, page, sizeof page);
    }
    struct dev_memory report;
    dev_queue_destroy(queue);
    dev_memory_free(device, memory);
    dev_memory_report(device, &report);
    dev_close(device);
    return report.used_bytes == 0 ? rc : core_err_set(-EBADMSG, "memory is left");
}

static int rates_life(void)
{
    struct dev_device *device = NULL;
    struct dev_rates rates;
    int rc = dev_open("cpu", &(struct dev_options){.memory_bytes = 1 << 16}, &device);
    if (rc == 0) {
        rc = dev_rates_measure(device, 4096, &rates);
    }
    dev_close(device);
    return rc;
}

/* If any allocation fails, the failure is reported, and everything is freed. */
static void failing_allocations(void)
{
    check_int(test_fail_nth(queue_life), >=, 8);
    check_int(test_fail_nth(rates_life), >=, 8);
}

TEST_MAIN({"failing_allocations", failing_allocations})
