/* measure.h: measures one part of a machine at a time, for rates.c. Processes also measure their
 * collectives with it (remote.c, follow.c). The caller's thread waits. */
#ifndef OFFLOAD_RUN_MEASURE_H
#define OFFLOAD_RUN_MEASURE_H

#include "offload/run/options.h"
#include "offload/run/rates_file.h"
#include "offload/run/shapes.h"

struct coll_peers;

/* ---- limits ---- */

/* Returns the bytes that measuring may take: at most a quarter of the budgets, and less for a small
 * model. */
uint64_t run_measure_spare(const struct run_shapes *shapes, const struct run_options *options);

/* Returns the budgets of HOST and DEVICE together. */
uint64_t run_measure_budget_bytes(const struct run_options *options);

/* Returns the size of the file for measuring a drive: the bytes of all weights and states, rounded
 * up to a power of two within limits. A smaller file might be read from a cache in front of the
 * drive. */
uint64_t run_measure_file_bytes(const struct run_shapes *shapes, const struct run_options *options);

/* ---- kinds of rates ---- */

/* Measures the seconds of the model's blocks, each within the budgets, and sets machine.flops. A
 * layer that does not fit is measured with fewer rows; an embedding or a head that does not fit, or
 * that takes more than 1 GiB, is not measured. Sets *whole to whether all blocks fit; the result
 * then applies to this shape with any budgets. */
int run_measure_blocks(const struct run_shapes *shapes, const struct run_options *options,
                       struct run_rates *out, bool *whole);

/* Measures the update and the sums of squares on the processor, and how much a card's copies slow
 * them down. Call it after run_measure_copies. */
int run_measure_update(const struct run_shapes *shapes, const struct run_options *options,
                       struct plan_rates *out);
/* Measures copies between HOST and DEVICE, and within a device; with several ranks on the CPU
 * device also codes and, if the ranks are threads of a model's run, collectives. */
int run_measure_copies(const struct run_shapes *shapes, const struct run_options *options,
                       struct plan_rates *out);
/* Work of the processor that is timed while a card copies both ways. */
struct run_beside {
    int (*work)(void *context);
    void *context;
    double seconds;       /* seconds that the work takes alone, approximately */
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
/* Measures how many bytes per second each rank receives while all ranks take part, with arrays of
 * at most `bytes`. Sets coll_bytes, the mean of a reduction and a gather, and within_bytes, for a
 * gather within groups. */
int run_measure_coll(const struct run_coll_ranks *with, uint64_t bytes, struct plan_rates *out);
/* Measures the update and the sums of squares on a card, in its memory. Sets only the fields
 * card_*; on the CPU device they are 0. */
int run_measure_card(const struct run_shapes *shapes, const struct run_options *options,
                     struct plan_rates *out);

/* Measures how many weights per second a device expands from their stored form. Sets only
 * expand_elements; it is 0 if no block is stored in fewer bits. */
int run_measure_expand(const struct run_shapes *shapes, const struct run_options *options,
                       struct plan_rates *out);

enum { RUN_RATES_PATH_BYTES = 4096 };

/* Writes to `path` the directory itself, or its nearest parent that exists: a store is created and
 * removed with each run. */
void run_rates_nearest(const char *directory, char path[RUN_RATES_PATH_BYTES]);

/* Measures the drive of a directory with the store's requests and checksums. Sets *steady to
 * whether the result can be cached: the drive was fast, or equally slow in two measurements and not
 * stalled. If it cannot be cached, it is used nevertheless, and a warning says so. */
int run_measure_drive(const struct run_shapes *shapes, const struct run_options *options,
                      const char *directory, struct run_drive_rates *out, bool *steady);

#endif
