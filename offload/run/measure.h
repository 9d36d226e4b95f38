/* measure.h: measures one part of a machine at a time, for rates.c. Processes also measure their
 * collectives with it (remote.c, follow.c). The caller's thread waits. */
#ifndef OFFLOAD_RUN_MEASURE_H
#define OFFLOAD_RUN_MEASURE_H

#include "offload/run/options.h"
#include "offload/run/rates_file.h"
#include "offload/run/shapes.h"

struct coll_peers;

/* ---- limits ---- */

/* Returns the bytes that measuring may take: at most a quarter of the budgets, and not more than a
 * run of the model would take. */
uint64_t run_measure_spare(const struct run_shapes *shapes, const struct run_options *options);

/* Returns the budgets of HOST and DEVICE together. */
uint64_t run_measure_budget_bytes(const struct run_options *options);

/* Returns the size of the file for measuring a drive: the number of bytes that a run keeps there,
 * within limits, rounded to a power of two. A smaller file might be read from a cache in front of
 * the drive. */
uint64_t run_measure_file_bytes(const struct run_shapes *shapes, const struct run_options *options);

/* ---- kinds of rates ---- */

/* Measures the seconds of the model's blocks, each within the budgets; a layer that does not fit is
 * measured with fewer rows. *whole: whether all blocks fit, so that the result applies to this
 * shape with any budgets. */
int run_measure_blocks(const struct run_shapes *shapes, const struct run_options *options,
                       struct run_rates *out, bool *whole);

/* Measures the update and the sums of squares on the processor, and how much a card's copies slow
 * them down. Call it after run_measure_copies. */
int run_measure_update(const struct run_shapes *shapes, const struct run_options *options,
                       struct plan_rates *out);
/* Measures copies between HOST and DEVICE, and within a device. */
int run_measure_copies(const struct run_shapes *shapes, const struct run_options *options,
                       struct plan_rates *out);
/* Work of the processor that is timed while a card copies both ways. */
struct run_beside {
    int (*work)(void *context);
    void *context;
    double seconds;       /* about the seconds of the work alone */
    double link_bytes;    /* bytes per second of a copy; 0: unknown, and few copies are made */
    uint64_t spare_bytes; /* size of the memory for the copies, on both sides together */
};
/* Sets *seconds to the time of the work, and *copied_bytes to the bytes per second that were copied
 * meanwhile, in both directions together. */
int run_measure_beside(const struct run_options *options, const struct run_beside *with,
                       double *seconds, double *copied_bytes);
/* Ranks of this process among all ranks that measure collectives. */
struct run_coll_ranks {
    uint32_t first, count, world;
    uint32_t within;          /* size of groups that gather weights; 0: no groups */
    struct coll_peers *peers; /* borrowed: the other processes; NULL: there are none */
};
/* Measures the bytes that each rank receives per second while all ranks take part, with arrays of
 * at most `bytes`: coll_bytes, the mean of a reduction and a gather, and within_bytes, a gather of
 * groups. */
int run_measure_coll(const struct run_coll_ranks *with, uint64_t bytes, struct plan_rates *out);
/* Measures update and sums of a card in its memory: only the fields card_*, which are 0 on the CPU
 * device. */
int run_measure_card(const struct run_shapes *shapes, const struct run_options *options,
                     struct plan_rates *out);

/* Measures the weights per second that a device expands from stored ones: only expand_elements,
 * which is 0 if no block is stored in fewer bits. */
int run_measure_expand(const struct run_shapes *shapes, const struct run_options *options,
                       struct plan_rates *out);

enum { RUN_RATES_PATH_BYTES = 4096 };

/* Writes to `path` the directory itself, or its nearest parent that exists: a store is created and
 * removed with each run. */
void run_rates_nearest(const char *directory, char path[RUN_RATES_PATH_BYTES]);

/* Measures the drive of a directory with the store's requests and checksums. *steady: the result
 * can be cached, because the drive was fast, or was slow in two measurements. */
int run_measure_drive(const struct run_shapes *shapes, const struct run_options *options,
                      const char *directory, struct run_drive_rates *out, bool *steady);

#endif
