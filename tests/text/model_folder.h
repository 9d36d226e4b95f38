/* model_folder.h: model folders with the tokenizer of a fixture. */
#ifndef TESTS_TEXT_MODEL_FOLDER_H
#define TESTS_TEXT_MODEL_FOLDER_H

#include "tools/text/data/row.h"

/* Makes a folder with only the tokenizer of a fixture. Returns its path, which the next call
 * overwrites. */
const char *model_folder_make(const char *name, const char *tokenizer);

/* Makes a model folder with a fixture's tokenizer and this configuration. Returns its path, which
 * the next call overwrites, or NULL if this build cannot read the tokenizer. */
const char *model_folder(const char *name, const char *tokenizer, const char *config);

/* Parses and encodes rows with the folder's tokenizer. Returns 0 or the first error. */
int model_folder_encode(const char *folder, const char *const *rows, size_t count,
                        int (*parse)(const char *text, size_t bytes, struct text_row *out));

#endif
