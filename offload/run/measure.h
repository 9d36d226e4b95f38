/* measure.h: measures parts of a machine one at a time. The caller's thread waits. */
#ifndef OFFLOAD_RUN_MEASURE_H
#define OFFLOAD_RUN_MEASURE_H

#include "offload/run/options.h"
#include "offload/run/rates_file.h"
#include "offload/run/shapes.h"

struct coll_peers;

/* ---- limits ---- */

/* Returns the bytes for measuring: at most a quarter of the budgets, less for a small model. */
uint64_t run_measure_spare(const struct run_shapes *shapes, const struct run_options *options);

/* Returns the bytes that HOST and DEVICE may take together. */
uint64_t run_measure_budget_bytes(const struct run_options *options);

/* Returns the size of a file for measuring a drive: a power of two within limits. A file smaller
 * than weights and states might be read from a cache. */
uint64_t run_measure_file_bytes(const struct run_shapes *shapes, const struct run_options *options);

/* ---- kinds of rates ---- */

/* Measures the model's blocks within the budgets, and sets machine.flops. A layer that does not fit
 * is measured with fewer tokens; an embedding or head that does not fit or takes over 1 GiB is not
 * measured. Sets *whole to whether all blocks fit; the result then holds for any budgets. */
int run_measure_blocks(const struct run_shapes *shapes, const struct run_options *options,
                       struct run_rates *out, bool *whole);

/* Measures the processor's update and sums of squares, also beside a card's copies. Call it after
 * run_measure_copies. */
int run_measure_update(const struct run_shapes *shapes, const struct run_options *options,
                       struct plan_rates *out);
/* Measures copies between HOST and DEVICE, and within a device; with several ranks on the CPU
 * device also codes and, if ranks are threads of a model's run, collectives. */
int run_measure_copies(const struct run_shapes *shapes, const struct run_options *options,
                       struct plan_rates *out);
/* Work of the processor, timed beside a card's copies. */
struct run_beside {
    int (*work)(void *context);
    void *context;
    double seconds;       /* approximate seconds of the work alone */
    double link_bytes;    /* bytes per second of a copy; 0: unknown, so few copies are made */
    uint64_t spare_bytes; /* bytes for the copies, both sides together */
};
/* Sets *seconds to the work's time, and *copied_bytes to the bytes per second copied meanwhile in
 * both directions. */
int run_measure_beside(const struct run_options *options, const struct run_beside *with,
                       double *seconds, double *copied_bytes);
/* Ranks of this process among those that measure collectives. */
struct run_coll_ranks {
    uint32_t first, count, world;
    uint32_t within;          /* ranks of a group that gathers weights; 0: none */
    struct coll_peers *peers; /* borrowed: the other processes; may be NULL */
};
/* Measures the bytes per second that a rank receives, with arrays of at most `bytes`. Sets
 * coll_bytes, the mean of a reduction and a gather, and within_bytes, of a gather within groups. */
int run_measure_coll(const struct run_coll_ranks *with, uint64_t bytes, struct plan_rates *out);
/* Measures the update and sums of squares in a card's memory. Sets only card_*; 0 on the CPU
 * device. */
int run_measure_card(const struct run_shapes *shapes, const struct run_options *options,
                     struct plan_rates *out);

/* Measures the weights per second that a device expands. Sets only expand_elements; 0 if no block
 * is stored in fewer bits. */
int run_measure_expand(const struct run_shapes *shapes, const struct run_options *options,
                       struct plan_rates *out);

enum { RUN_RATES_PATH_BYTES = 4096 };

/* Sets `path` to the directory or its nearest existing parent: stores come and go with runs. */
void run_rates_nearest(const char *directory, char path[RUN_RATES_PATH_BYTES]);

/* Measures a directory's drive with the store's requests and checksums. *steady: the result can be
 * cached, because the drive was fast, or equally slow twice and not stalled. */
int run_measure_drive(const struct run_shapes *shapes, const struct run_options *options,
                      const char *directory, struct run_drive_rates *out, bool *steady);

#endif
