/* rows.h: small files of rows, and finetune_data over them. */
#ifndef TESTS_FINETUNE_ROWS_H
#define TESTS_FINETUNE_ROWS_H

#include "tools/tide/finetune_data.h"

/* Writes rows.jsonl: rows of `length` tokens, the first of which is the row's number, from 1.
 * Returns its path. */
const char *rows_file(int rows, int length);
struct finetune_data_options rows_options(const char *path);
/* Opens the data; fails the case if it cannot. */
struct finetune_data *rows_open(const struct finetune_data_options *options);

#endif
