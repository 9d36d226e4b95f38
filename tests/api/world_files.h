/* world_files.h: the files of world.h, without the structs of the public headers. */
#ifndef TESTS_API_WORLD_FILES_H
#define TESTS_API_WORLD_FILES_H

#include <stdint.h>

enum { WORLD_ROWS = 2, WORLD_LENGTH = 16, WORLD_VOCAB = 601, WORLD_PATH_BYTES = 512 };

/* Writes a model folder and a file of rates; fills `ids` with WORLD_ROWS x WORLD_LENGTH tokens. */
void world_files_init(char model[WORLD_PATH_BYTES], char rates[WORLD_PATH_BYTES], int32_t *ids);

#endif
