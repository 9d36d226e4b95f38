/* rig.h: runs ops on the device under test and compares the results with the references on the
 * host. `--dev NAME` selects the device, by default that of rig_machine; cases of a device that the
 * machine lacks are skipped. One thread. */
#ifndef TESTS_KERNELS_RIG_H
#define TESTS_KERNELS_RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kern.h"
#include "kernels/table.h"
#include "tests/harness/test.h"

enum { RIG_ARRAYS_MAX = 48 };

/* Opens the device, and closes the one before. Skips the case if the machine lacks the device. */
void rig_open(const struct kern_options *options, unsigned threads);
void rig_close(void);
/* Calls `test` for each way to compute: instruction sets and oneDNN on the CPU, our products and
 * the library's on a GPU. */
void rig_each(void (*test)(void));
/* Like rig_each(), for ops without products: once on a GPU. */
void rig_each_kernel(void (*test)(void));

/* Returns whether the device is a GPU, perhaps an emulated one. */
bool rig_is_card(void);

/* Returns whether attention may round its probabilities to this type before a product. */
bool rig_rounds_tiles(enum kern_type type);

/* Drops all arrays and sets the seed of random numbers. */
void rig_case(uint64_t seed);
int64_t rig_int(int64_t low, int64_t high); /* low <= n <= high */
double rig_unit(void);                      /* in [0, 1) */

/* Arrays exist on host and device; arguments contain the host's pointers. */
void *rig_random(enum kern_type type, int64_t count, double size); /* uniform in [-size, size) */
void *rig_zeros(enum kern_type type, int64_t count);
void *rig_ints(const int32_t *values, int64_t count);
void *rig_bytes(size_t bytes); /* zeros */

/* Runs the op on the device side of the arrays. Returns the error of the launch or of the queue.
 * Fails the case if it finds that the op wrote past an array. */
int rig_run(enum kern_op op, const void *arguments);
/* Runs the reference on the arrays' host side. */
void rig_reference(enum kern_op op, const void *arguments);
/* Fetches the device side of an array; valid until the next fetch of it or the next case. */
const void *rig_fetch(const void *array);

/* Tolerance: |got - want| <= roundings u |want| + noise 2^-24 max |want|, u being half a unit in
 * the last place of the type. max |want| counts as at least 0.05, and fp16 may differ by 2^-23
 * more. */
struct rig_bound {
    double roundings; /* of the type */
    double noise;     /* roundings of fp32 */
};
/* Fails the case if the two sides of an array differ by more than the bound. */
void rig_compare(const char *what, const void *array, struct rig_bound bound);
/* Calls rig_run and rig_reference, and compares the listed arrays (up to NULL). */
void rig_check(enum kern_op op, const void *arguments, struct rig_bound bound, ...)
    __attribute__((sentinel));

#define RIG_MAIN(...)                                                                              \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        static const struct test_case cases[] = {__VA_ARGS__};                                     \
        return rig_main(argc, argv, cases, sizeof cases / sizeof cases[0]);                        \
    }
int rig_main(int argc, char **argv, const struct test_case *cases, size_t count);

/* Returns the default device's name; rig_main calls it first. tests/cuda creates an emulated GPU
 * here. */
const char *rig_machine(void);
/* Returns whether device memory is host memory that a sanitizer may watch. */
bool rig_machine_is_visible(void);

#endif
