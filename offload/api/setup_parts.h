/* setup_parts.h: the parts of a setup, each in a file with its name. After a failure the setup
 * keeps its contents for setup_fini. Private to the files setup*.c. */
#ifndef OFFLOAD_API_SETUP_PARTS_H
#define OFFLOAD_API_SETUP_PARTS_H

#include "offload/api/setup.h"

/* Bytes of each file system, and at most as many of memory, that are left to other programs if no
 * limit is given. */
enum { SETUP_RESERVE_BYTES = 1 << 30 };

/* ---- setup_ranks.c ---- */

/* Sets the number of ranks and the resources that they share; with `weights`, if the device is a
 * GPU, each rank must have one here. */
int setup_init_ranks(struct setup *setup, bool weights);
/* Measures how fast ranks receive data from each other over the connections of their processes. */
int setup_measure_peers(struct setup *setup);

/* ---- setup_model.c ---- */

int setup_open_model(struct setup *setup, bool weights);

/* ---- setup_stores.c ---- */

/* Copies the caller's array, whose elements may have another size than the library's. */
int setup_read_stores(struct setup *setup);
/* Sets the directories of the stores and how much each may use. With `makes` (a run, not only a
 * plan) and given.stores_must_exist, a missing directory is an error unless a file system is
 * mounted at its parent. */
int setup_fill_stores(struct setup *setup, bool makes);

/* ---- setup_budgets.c ---- */

/* Sets the budgets of one rank. */
int setup_fill_budgets(struct setup *setup);

#endif
