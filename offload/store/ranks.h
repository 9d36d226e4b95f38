/* ranks.h: the folders of ranks in a store's directory: their names, what they hold for who only looks,
 * and removing those that a dead run of more ranks has left. Any thread. */
#ifndef OFFLOAD_STORE_RANKS_H
#define OFFLOAD_STORE_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The folder of a rank. -ENAMETOOLONG with a sentence. */
int store_rank_folder(const char *directory, unsigned rank, char *text, size_t bytes);

/* Removes what runs with more than `world` ranks have left which are not there any more; what is in
 * use or not ours stays, and what cannot be removed is a warning. */
void store_ranks_clear(const char *directory, unsigned world);

struct store_look {
    uint64_t files, bytes; /* of all ranks */
    uint64_t run, process; /* of the first file that is sound */
    uint32_t path, paths;  /* which of its store's directories this is, and how many these are */
    bool in_use;           /* of one of them at least */
};

/* Looks at the extent files of a store's directory, or of one rank's folder. -ENOENT without a
 * sentence: there are none. -EBADMSG: one is not sound or of another run than the rest, and the
 * sentence says which; *out is filled in all the same. */
int store_look(const char *directory, struct store_look *out);

#endif
