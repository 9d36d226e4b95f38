/* rates_file.h: the rates at which a machine does the parts of a step: as numbers, as one JSON
 * file, and in a cache between runs with a small JSON file per part of the machine. A file of the
 * cache is valid only for the key under which it was written, and for some weeks
 * (core/json/cache.h). If it is damaged, the part is measured again. Runs on the caller's
 * thread. */
#ifndef OFFLOAD_RUN_RATES_FILE_H
#define OFFLOAD_RUN_RATES_FILE_H

#include <stdbool.h>

#include "offload/plan/types.h"
#include "offload/store/store.h"

struct run_rates {
    struct plan_rates machine;
    /* Seconds that a block of each kind takes alone, [enum model_block_kind]; 0: estimated from
     * flops. */
    double forward_seconds[3];
    double recompute_seconds[3];
    double backward_seconds[3];
    /* Rates of each store while it is read and written at once; 0: not measured. Extents are spread
     * over stores in proportion. */
    double drive_bytes[STORE_PATHS_MAX];
};

struct run_drive_rates {
    double read_bytes;
    double write_bytes;
    double mixed_bytes;
    double cpu_ns_per_byte; /* processor time of the drive's thread, including checksums */
    double window_bytes;    /* bytes in flight during the measurement, in both directions */
};

/* One node of a machine, as a file describes it (docs/plan-json.md): its parts, and the rates of
 * each part if nothing else uses it. */
struct run_machine {
    bool card;                   /* GPUs compute; false: the processors */
    double devices;              /* number of GPUs; 1 without any */
    double device_bytes;         /* memory of a card; 0 without any */
    double device_memory_bytes;  /* rate of a card's own memory */
    double flops;                /* operations per second of a GPU, or of all processors */
    double up_bytes, down_bytes; /* rates of one GPU */
    double links_bytes;          /* of all GPUs together, in each direction; 0: no such limit */
    double cores;
    /* number of nodes over which processors and memory are spread evenly; 0: 1 */
    double numa_nodes;
    double host_bytes;
    double memory_bytes;                         /* rate of host memory */
    double store_bytes;                          /* size of all drives together; 0: no drive */
    double read_bytes, write_bytes, mixed_bytes; /* rates of all drives together */
    /* bytes per second that a rank receives from others of its node; 0: limited by host memory */
    double inside_bytes;
    /* bytes per second that a node receives from others; 0: it has no network */
    double between_bytes;
    double command_seconds;
};

/* Reads the file of a machine. Returns -ENOENT if the file or a key is missing, -EINVAL if the
 * file is not valid; the message names file and key. */
int run_machine_read(const char *path, struct run_machine *out);

/* Read and write a JSON file of all rates (docs/plan-json.md). Reading returns -ENOENT if the
 * file or a number is missing, -EINVAL if a number is not valid; the message names file and key. */
int run_rates_read(const char *path, struct run_rates *out);
int run_rates_write(const char *path, const struct run_rates *rates);

/* ---- cache ---- */

/* The parts of a machine. Each of the first three has a cached file with its measured numbers. */
enum run_rates_part {
    RUN_RATES_DRIVE,   /* struct run_drive_rates */
    RUN_RATES_UPDATE,  /* members of struct run_rates for updates, copies, codes and collectives */
    RUN_RATES_BLOCKS,  /* members of struct run_rates for flops and seconds of blocks */
    RUN_RATES_MACHINE, /* no cached file: members of struct run_machine */
    RUN_RATES_PARTS,
};

struct run_rates_cached {
    const char *folder; /* NULL: nothing is kept */
    const char *key;    /* all that the part's numbers depend on */
    enum run_rates_part part;
};

/* Fills in the part's numbers in `rates`, the struct that the part names. Returns false, and
 * changes nothing, if the folder does not have them. */
bool run_rates_cache_read(const struct run_rates_cached *cached, void *rates);
/* Writes the part's numbers. Creates the folder and its parents if they are missing. Logs a
 * failure. */
void run_rates_cache_write(const struct run_rates_cached *cached, const void *rates);
/* Removes the file, so that the part is measured again. */
void run_rates_cache_forget(const struct run_rates_cached *cached);

#endif
