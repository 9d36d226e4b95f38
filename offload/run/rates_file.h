/* rates_file.h: measured rates in a cache between runs: a small JSON file per part of the machine. A
 * file counts only for the key that it was written under, and for some weeks (core/json/cache.h). A
 * damaged file or folder is no error: the part is measured again. The caller's thread. */
#ifndef OFFLOAD_RUN_RATES_FILE_H
#define OFFLOAD_RUN_RATES_FILE_H

#include "offload/run/measure.h"

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
