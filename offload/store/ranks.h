/* ranks.h: the folders of ranks in a store's directory: names, contents, and removal after dead
 * runs. Any thread. */
#ifndef OFFLOAD_STORE_RANKS_H
#define OFFLOAD_STORE_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes the path of a rank's folder. Returns 0 or -ENAMETOOLONG with a message. */
int store_rank_folder(const char *directory, unsigned rank, char *text, size_t bytes);

/* Removes unused folders of ranks `world` and up. Warns about an extent file that is not ours or
 * cannot be removed. */
void store_ranks_clear(const char *directory, unsigned world);

struct store_look {
    uint64_t files, bytes; /* number and size of the files of all ranks */
    uint64_t run, process; /* numbers that the first valid file names */
    uint32_t path, paths;  /* index of this directory, and number of directories, in the store */
    bool in_use;           /* a file is in use */
};

/* Inspects a store's directory or one rank's folder. Returns -ENOENT without a message if there are
 * no extent files, or -EBADMSG with a message if a file is invalid or of another run; *out is
 * filled even then. */
int store_look(const char *directory, struct store_look *out);

#endif
