/* ranks.h: the folders of ranks in a store's directory: their names, their contents for `tide
 * inspect`, and removal of folders that a dead run with more ranks left. Any thread. */
#ifndef OFFLOAD_STORE_RANKS_H
#define OFFLOAD_STORE_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes the path of a rank's folder. Returns 0 or -ENAMETOOLONG with a message. */
int store_rank_folder(const char *directory, unsigned rank, char *text, size_t bytes);

/* Removes the folders of ranks `world` and up that dead runs left. Folders that are in use stay. An
 * extent file that is not ours, or that cannot be removed, causes a warning. */
void store_ranks_clear(const char *directory, unsigned world);

struct store_look {
    uint64_t files, bytes; /* number and size of the files of all ranks */
    uint64_t run, process; /* numbers that the first valid file names */
    uint32_t path, paths;  /* index of this directory in its store, and the store's number of
                            * directories */
    bool in_use;           /* at least one of the files is in use */
};

/* Inspects the extent files of a store's directory, or of one rank's folder. Returns -ENOENT
 * without a message if there are none. Returns -EBADMSG with a message if a file is invalid or
 * belongs to another run than the others; *out is filled in even so. */
int store_look(const char *directory, struct store_look *out);

#endif
