/* stripe.h: how many units of an extent go to each path, in proportion to their speeds. Pure; the
 * caller keeps the credit between calls. */
#ifndef AIO_STRIPE_H
#define AIO_STRIPE_H

#include <stdint.h>

/* Shares `units` over `count` paths: in proportion to `weights`, where `credit` (zeros at first)
 * carries what rounding left over, so that the sum over many extents is exact to one unit a path.
 * A path gets no more than `free_units`; the others take what it cannot. `units` must not exceed
 * the sum of them. */
void aio_stripe_share(const double *weights, double *credit, const uint64_t *free_units,
                      unsigned count, uint64_t units, uint64_t *out);

#endif
