/* rates_file.h: how fast a machine does the parts of a step, as numbers, as one JSON file, and in a
 * cache between runs with a small JSON file per part of the machine. A file of the cache counts only
 * for the key that it was written under, and for some weeks (core/json/cache.h). If it is damaged, the
 * part is measured again. The caller's thread. */
#ifndef OFFLOAD_RUN_RATES_FILE_H
#define OFFLOAD_RUN_RATES_FILE_H

#include <stdbool.h>

#include "offload/plan/types.h"
#include "offload/store/store.h"

struct run_rates {
    struct plan_rates machine;
    /* Seconds that a block of each kind takes alone, [enum model_block_kind]; 0: from flops. */
    double forward_seconds[3];
    double recompute_seconds[3];
    double backward_seconds[3];
    /* Of each store, reading and writing at once; 0: not measured. Extents are spread over stores in
     * proportion. */
    double drive_bytes[STORE_PATHS_MAX];
};

/* Of one drive. */
struct run_drive_rates {
    double read_bytes;
    double write_bytes;
    double mixed_bytes;
    double cpu_ns_per_byte; /* of the drive's thread, including checksums */
    double window_bytes;    /* bytes in flight meanwhile, in both directions */
};

/* Read and write a JSON file of all rates (docs/plan-json.md). -EINVAL: the message names the file and
 * the key. */
int run_rates_read(const char *path, struct run_rates *out);
int run_rates_write(const char *path, const struct run_rates *rates);

/* ---- cache ---- */

/* The measured numbers of one part, and of one cached file. */
enum run_rates_part {
    RUN_RATES_DRIVE,  /* struct run_drive_rates */
    RUN_RATES_UPDATE, /* of struct run_rates: update and copies */
    RUN_RATES_BLOCKS, /* of struct run_rates: seconds of the model's blocks */
    RUN_RATES_PARTS,
};

struct run_rates_cached {
    const char *folder; /* NULL: nothing is kept */
    const char *key;    /* everything that the part's numbers depend on */
    enum run_rates_part part;
};

/* Fills in the part's numbers in `rates`, the struct that the part names. False, and nothing is
 * changed, if the folder does not have them. */
bool run_rates_cache_read(const struct run_rates_cached *cached, void *rates);
/* Creates the folder and its parents if they are missing. */
void run_rates_cache_write(const struct run_rates_cached *cached, const void *rates);
/* Removes the file, so that the part is measured again. */
void run_rates_cache_forget(const struct run_rates_cached *cached);

#endif
