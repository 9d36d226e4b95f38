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
    /* Rates of each store while it is read and written at once; 0: not measured. Extents are spread
     * over stores in proportion. */
    double drive_bytes[STORE_PATHS_MAX];
};

/* Rates of one drive. */
struct run_drive_rates {
    double read_bytes;
    double write_bytes;
    double mixed_bytes;
    double cpu_ns_per_byte; /* processor time of the drive's thread, including checksums */
    double window_bytes;    /* bytes in flight meanwhile, in both directions */
};

/* One node of a machine, as a file describes it (docs/plan-json.md): what it has, and what its parts can do
 * together if nothing else uses them. */
struct run_machine {
    bool card;                   /* cards compute; else the processors */
    double devices;              /* cards; 1 without any */
    double device_bytes;         /* memory of a card; 0 without any */
    double device_memory_bytes;  /* rate of a card's own memory */
    double flops;                /* operations per second of a GPU, or of all processors */
    double up_bytes, down_bytes; /* rates of one GPU */
    double links_bytes;          /* in each direction, of all cards together; 0: no such limit */
    double cores;
    double numa_nodes; /* over which processors and memory are spread evenly; 0: 1 */
    double host_bytes;
    double memory_bytes; /* rate of host memory */
    double store_bytes;  /* all drives, like the rates; 0: no drive */
    double read_bytes, write_bytes, mixed_bytes;
    double inside_bytes;  /* what a rank receives from others of its node; 0: by host memory */
    double between_bytes; /* what a node receives from others; 0: it has no network */
    double command_seconds;
};

/* Reads the file of a machine. Returns -EINVAL with a message that names file, line, column and
 * key. */
int run_machine_read(const char *path, struct run_machine *out);

/* Read and write a JSON file of all rates (docs/plan-json.md). Returns -EINVAL with a message that
 * names the file and the key. */
int run_rates_read(const char *path, struct run_rates *out);
int run_rates_write(const char *path, const struct run_rates *rates);

/* ---- cache ---- */

/* The measured numbers of one part, and of one cached file. */
enum run_rates_part {
    RUN_RATES_DRIVE,   /* struct run_drive_rates */
    RUN_RATES_UPDATE,  /* members of struct run_rates for update and copies */
    RUN_RATES_BLOCKS,  /* members of struct run_rates with seconds of the model's blocks */
    RUN_RATES_MACHINE, /* no cached file: of struct run_machine */
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
