/* measure_copies.c: times copies between HOST and DEVICE and within a device, and codes. */
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/coll/sum.h"
#include "core/dev/dev.h"
#include "kernels/quant.h"
#include "offload/run/measure.h"
#include "offload/run/measure_bench.h"

/* ---- codes ---- */

enum { CODE_TURNS = 3 };

/* Measures the 16-bit numbers per second that become codes: weights, and gradients, which are also
 * summed. */
static int measure_packing(uint64_t bytes, struct plan_rates *out)
{
    const uint64_t groups = bytes / sizeof(uint16_t) / COLL_CODES;
    const uint64_t count = groups * COLL_CODES;
    uint16_t *numbers = malloc(count * sizeof *numbers);
    uint8_t *codes = malloc(count * sizeof *numbers); /* room for the codes of weights and
                                                       * gradients */
    double packed = 0;
    double summed = 0;
    int rc = numbers != NULL && codes != NULL
                 ? 0
                 : core_err_set(-ENOMEM, "no memory to measure codes of numbers");
    for (uint64_t i = 0; rc == 0 && i < count; i++) {
        numbers[i] = (uint16_t)(0x3c00 + i % 1000); /* small numbers as bf16 and as fp16 */
    }
    for (int turn = 0; rc == 0 && turn < CODE_TURNS; turn++) {
        const int64_t start_ns = core_clock_now_ns();
        kern_quant_pack(KERN_BF16, numbers, (int64_t)groups, COLL_CODES, codes);
        packed = fmax(packed, (double)count / run_measure_seconds_since(start_ns));
        const int64_t middle_ns = core_clock_now_ns();
        coll_codes_encode(COLL_BF16, numbers, count, codes);
        coll_sum_codes(COLL_BF16, (const void *[]){codes}, 1, 0, count, numbers);
        summed = fmax(summed, (double)count / run_measure_seconds_since(middle_ns));
    }
    if (rc == 0) {
        out->pack_elements = packed;
        out->code_elements = summed;
    }
    free(numbers);
    free(codes);
    return rc;
}

/* ---- copies ---- */

enum { COPY_BYTES_MIN = 1 << 20, COPY_BYTES_MAX = 16 << 20 };
/* Copying this takes much longer than a launch. */
enum { CARD_COPY_BYTES_MAX = 256 << 20 };

int run_measure_copies(const struct run_shapes *shapes, const struct run_options *options,
                       struct plan_rates *out)
{
    const bool host = dev_is_cpu(options->device);
    const uint64_t bytes = run_measure_clamp(run_measure_spare(shapes, options) / 4, COPY_BYTES_MIN,
                                             host ? COPY_BYTES_MAX : CARD_COPY_BYTES_MAX);
    const struct dev_options size = {.memory_bytes = 3 * bytes};
    struct dev_device *device = NULL;
    struct dev_rates rates;
    int rc = dev_open(options->device, &size, &device);
    if (rc != 0) {
        return rc;
    }
    rc = dev_rates_measure(device, bytes, &rates);
    if (rc == 0) {
        out->up_bytes = rates.up;
        out->down_bytes = rates.down;
        out->both_bytes = host ? 0 : rates.both;
        out->round_elements = rates.within / 4;
        /* GPUs exchange at least at the rate of their links */
        out->coll_bytes = host ? rates.within : rates.both;
        out->shared_cores = host;
    }
    dev_close(device);
    if (rc == 0 && host && options->world > 1 && options->local == options->world &&
        options->coll_bytes == 0 && shapes->model != NULL) {
        rc = run_measure_coll(&(struct run_coll_ranks){.count = options->world,
                                                       .world = options->world,
                                                       .within = options->within},
                              bytes, out);
    }
    if (rc == 0 && options->world > 1 && host) {
        rc = measure_packing(bytes, out);
    }
    return rc;
}
