/* rates_parts.h: private to rates*.c: measuring one part of a machine. The caller's thread waits. */
#ifndef OFFLOAD_RUN_RATES_PARTS_H
#define OFFLOAD_RUN_RATES_PARTS_H

#include "offload/run/rates.h"

double run_rates_since(int64_t start_ns);

/* What measuring may take, for it has to stay in the budgets too: a quarter of them; and no more than
 * a run of the model would. */
uint64_t run_rates_spare(const struct run_shapes *shapes, const struct run_options *options);
/* The same with another upper limit, a power of two. */
uint64_t run_rates_spare_within(const struct run_shapes *shapes, const struct run_options *options,
                                uint64_t limit);
uint64_t run_rates_within(uint64_t value, uint64_t least, uint64_t most);

/* What the budgets of HOST and DEVICE are together. */
uint64_t run_rates_budget(const struct run_options *options);

/* Seconds of the model's own blocks, each measured within the budgets: a layer beyond them over fewer
 * rows. *whole: none was beyond them, so that it may be remembered for this shape. */
int run_rates_blocks(const struct run_shapes *shapes, const struct run_options *options,
                     struct run_rates *out, bool *whole);

/* The update and sums; then copies. */
int run_rates_update(const struct run_shapes *shapes, const struct run_options *options,
                     struct plan_rates *out);
int run_rates_copies(const struct run_shapes *shapes, const struct run_options *options,
                     struct plan_rates *out);

/* The same of a card in its own memory, by the fields card_* alone: 0 on the CPU device. */
int run_rates_card(const struct run_shapes *shapes, const struct run_options *options,
                   struct plan_rates *out);

/* A device of its own that something is timed on. */
struct dev_device;
struct dev_options;
struct dev_queue;
struct dev_queue_options;
struct kern_ops;
struct kern_options;

struct run_rates_device {
    struct dev_device *device;
    struct kern_ops *ops;
    struct dev_queue *queue;
    void *memory;
};

/* Zeroed before; closed also where opening failed. */
int run_rates_device_open(struct run_rates_device *on, const char *name,
                          const struct dev_options *device, const struct kern_options *kernels,
                          const struct dev_queue_options *queue, uint64_t bytes);
void run_rates_device_close(struct run_rates_device *on);

/* One drive. */
struct run_drive_rates {
    double read_bytes;
    double write_bytes;
    double mixed_bytes;
    double cpu_ns_per_byte; /* of the drive's thread, with checksums */
    double window_bytes;    /* in flight meanwhile, both ways together */
};

/* Bytes of the file that a drive is asked with: as many as a run keeps there, within limits, in powers
 * of two. What is read again and again may come out of a cache in front of the drive. */
uint64_t run_rates_file_bytes(const struct run_shapes *shapes, const struct run_options *options);

/* Asks the drive of a directory as the store will, with checksums. *steady: it was the same each time
 * it was asked, so that it may be remembered. */
int run_rates_drive(const struct run_shapes *shapes, const struct run_options *options,
                    const char *directory, struct run_drive_rates *out, bool *steady);

#endif
