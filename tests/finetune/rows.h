/* rows.h: small files of rows, and the trainer's data from them. */
#ifndef TESTS_FINETUNE_ROWS_H
#define TESTS_FINETUNE_ROWS_H

#include "tools/tide/finetune_data.h"

/* Rows of `length` tokens whose first is the row's number, from 1. Until the next call. */
const char *rows_file(int rows, int length);
struct tune_data_options rows_options(const char *path);
/* Fails the case if it cannot. */
struct tune_data *rows_open(const struct tune_data_options *options);

#endif
