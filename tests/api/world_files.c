/* world_files.c: see world_files.h. Does not use libtide. */
#include "tests/api/world_files.h"

#include <stdio.h>

#include "tests/harness/test.h"
#include "tests/run/case.h"

void world_files_init(char model[WORLD_PATH_BYTES], char rates[WORLD_PATH_BYTES], int32_t *ids)
{
    static struct case_model made;
    case_model_make(&made, "llama tied, whole");
    snprintf(model, WORLD_PATH_BYTES, "%s", made.folder);
    case_model_free(&made);
    snprintf(rates, WORLD_PATH_BYTES, "%s/rates.json", test_directory());
    check_int(run_rates_write(rates, case_rates()), ==, 0);
    uint32_t state = 5;
    for (int i = 0; i < WORLD_ROWS * WORLD_LENGTH; i++) {
        state = state * 1664525u + 1013904223u;
        ids[i] = (int32_t)((state >> 8) % WORLD_VOCAB);
    }
}
