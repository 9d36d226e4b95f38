/* table.h: attaches a device's ops, and says how much scratch they take. Host side; any thread, one
 * at a time per device. */
#ifndef KERNELS_TABLE_H
#define KERNELS_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/kern.h"

struct dev_device;
struct kern_ops;

/* Adds the ops of the device's kind to its table, before any queue of the device exists. `options`
 * NULL: defaults. The result holds caches and must outlive the device's queues. One queue of the
 * device at a time may run ops. Returns -ENOTSUP for a device without ops. */
int kern_ops_attach(struct dev_device *device, const struct kern_options *options,
                    struct kern_ops **out);
/* Call after the device's queues are destroyed. Accepts NULL. */
void kern_ops_detach(struct kern_ops *ops);

/* Returns how products are computed, for a log line: "blocked products (avx2)". */
const char *kern_ops_describe(const struct kern_ops *ops);

/* Returns the scratch bytes of the op with these arguments on a kind of device ("cpu", "cuda"), in
 * a queue of `threads`. Pointers are only compared with NULL. A queue's scratch_bytes is the
 * largest of its ops. */
size_t kern_scratch_bytes(const char *kind, enum kern_op op, const void *arguments,
                          unsigned threads);

/* Returns the parts in which a kind of device computes a loss without `dw`. */
struct kern_loss_parts kern_loss_parts_of(const char *kind, const struct kern_loss_arguments *a);

#endif
