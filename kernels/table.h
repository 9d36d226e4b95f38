/* table.h: gives a device its ops, and says how much scratch they take.
 * Host side; any thread, one at a time per device. */
#ifndef KERNELS_TABLE_H
#define KERNELS_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/kern.h"

struct dev_device;
struct kern_ops;

/* Adds the ops of the device's kind to its table, before any queue of the device exists. `options`
 * NULL takes the defaults. The result holds caches (primitives by shape) and must outlive the
 * device's queues. Only one queue of the device at a time may run ops. Returns -ENOTSUP for a
 * device without ops. */
int kern_ops_attach(struct dev_device *device, const struct kern_options *options,
                    struct kern_ops **out);
/* Call after the device's queues are destroyed. Accepts NULL. */
void kern_ops_detach(struct kern_ops *ops);

/* Returns how products are computed, in words, for a log line: "blocked products (avx2)". */
const char *kern_ops_describe(const struct kern_ops *ops);

/* Returns the scratch bytes that the op takes with these arguments on the kind of device ("cpu",
 * "cuda") in a queue of `threads`; the op never touches more. Pure: pointers are only compared with
 * NULL. A queue's scratch_bytes is the largest over the ops that it will run. */
size_t kern_scratch_bytes(const char *kind, enum kern_op op, const void *arguments,
                          unsigned threads);

/* Returns the parts by which a kind of device computes a loss without `dw`. */
struct kern_loss_parts kern_loss_parts_of(const char *kind, const struct kern_loss_arguments *a);

#endif
