/* rates_file.h: the rates of a machine's parts as numbers, as one JSON file, and in a cache with a
 * small JSON file per part. A cached file is valid only for its key and for some weeks
 * (core/json/cache.h); the rates of a damaged one are measured again. Runs on the caller's
 * thread. */
#ifndef OFFLOAD_RUN_RATES_FILE_H
#define OFFLOAD_RUN_RATES_FILE_H

#include <stdbool.h>

#include "offload/plan/types.h"
#include "offload/store/store.h"

struct run_rates {
    struct plan_rates machine;
    /* Seconds of a block of each kind alone, [enum model_block_kind]; 0: estimated from flops. */
    double forward_seconds[3];
    double recompute_seconds[3];
    double backward_seconds[3];
    /* Rates of each store, read and written at once; 0: not measured. Extents are spread in
     * proportion. */
    double drive_bytes[STORE_PATHS_MAX];
};

struct run_drive_rates {
    double read_bytes;
    double write_bytes;
    double mixed_bytes;
    double cpu_ns_per_byte; /* processor time of the drive's thread, with checksums */
    double window_bytes;    /* bytes in flight while measured, in both directions */
};

/* A node of a machine in a file (docs/plan-json.md): its parts, with rates of a part used alone. */
struct run_machine {
    bool card;                   /* GPUs compute; false: the processors */
    double devices;              /* number of GPUs; 1 without any */
    double device_bytes;         /* of a card; 0: no card */
    double device_memory_bytes;  /* rate of a card's own memory */
    double flops;                /* per second, of a GPU or of all processors */
    double up_bytes, down_bytes; /* rates of one GPU */
    double links_bytes;          /* all GPUs together, in each direction; 0: no such limit */
    double cores;
    /* nodes over which processors and memory are spread evenly; 0: 1 */
    double numa_nodes;
    double host_bytes;
    double memory_bytes;                         /* rate of host memory */
    double store_bytes;                          /* all drives together; 0: no drive */
    double read_bytes, write_bytes, mixed_bytes; /* rates of all drives together */
    /* bytes per second that a rank receives inside its node; 0: limited by host memory */
    double inside_bytes;
    /* bytes per second that a node receives from others; 0: no network */
    double between_bytes;
    double command_seconds;
};

/* Reads the file of a machine. The message of an error names file and key. */
int run_machine_read(const char *path, struct run_machine *out);

/* Read and write a JSON file of all rates (docs/plan-json.md). The message of an error of reading
 * names file and key. */
int run_rates_read(const char *path, struct run_rates *out);
int run_rates_write(const char *path, const struct run_rates *rates);

/* ---- cache ---- */

/* The parts of a machine. The first three have a cached file. */
enum run_rates_part {
    RUN_RATES_DRIVE,   /* struct run_drive_rates */
    RUN_RATES_UPDATE,  /* in struct run_rates: updates, copies, codes and collectives */
    RUN_RATES_BLOCKS,  /* in struct run_rates: flops and seconds of blocks */
    RUN_RATES_MACHINE, /* in struct run_machine; not cached */
    RUN_RATES_PARTS,
};

struct run_rates_cached {
    const char *folder; /* NULL: nothing is kept */
    const char *key;    /* all that the part's numbers depend on */
    enum run_rates_part part;
};

/* Fills in the part's numbers in `rates`, its struct. Returns false, and changes nothing, if the
 * folder lacks valid ones. */
bool run_rates_cache_read(const struct run_rates_cached *cached, void *rates);
/* Writes the part's numbers. Creates missing folders. Logs a failure. */
void run_rates_cache_write(const struct run_rates_cached *cached, const void *rates);
/* The part will be measured again. */
void run_rates_cache_forget(const struct run_rates_cached *cached);

#endif
