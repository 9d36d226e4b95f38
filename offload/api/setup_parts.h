/* setup_parts.h: the parts of a setup; private to setup*.c. After a failure, setup_fini frees the
 * contents. */
#ifndef OFFLOAD_API_SETUP_PARTS_H
#define OFFLOAD_API_SETUP_PARTS_H

#include "offload/api/setup.h"

/* Bytes of a file system, and the most bytes of memory, left to other programs if no limit is
 * given. */
enum { SETUP_RESERVE_BYTES = 1 << 30 };

/* ---- setup_ranks.c ---- */

/* Sets ranks and their resources. With `weights`, a GPU device needs one GPU here per rank. */
int setup_init_ranks(struct setup *setup, bool weights);
/* Measures how fast ranks receive data from each other over their connections. */
int setup_measure_peers(struct setup *setup);

/* ---- setup_model.c ---- */

int setup_open_model(struct setup *setup, bool weights);

/* ---- setup_stores.c ---- */

/* Copies the caller's array, whose elements may have another size than the library's. */
int setup_read_stores(struct setup *setup);
/* Sets the stores' directories and limits. With `makes` (a run), a missing directory is an error if
 * its parent is missing, too; and with given.stores_must_exist unless its parent is a mount
 * point. */
int setup_fill_stores(struct setup *setup, bool makes);

/* ---- setup_budgets.c ---- */

/* Sets the budgets of one rank. */
int setup_fill_budgets(struct setup *setup);

#endif
