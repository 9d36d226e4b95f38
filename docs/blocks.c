/* blocks.c: keeps more data than fits in memory in a block store of libtide, and uses the data in
 * the same order in each iteration.
 *
 *     cc -std=c17 blocks.c $(pkg-config --cflags --libs tide) -o blocks
 *     ./blocks DIRECTORY
 *
 * DIRECTORY is on a fast drive. The program uses 64 MiB of the drive and 16 MiB of memory. */
#include <stdio.h>
#include <stdlib.h>
#include <tide/blocks.h>

enum { COUNT = 48, NUMBERS = (1 << 20) / sizeof(double), ITERATIONS = 4 };

/* Adds 1 to each number of every block, in memory of the store. */
static int iterate(struct tide_blocks *blocks)
{
    char name[16];
    /* from the second iteration on, blocks are read ahead */
    int rc = tide_blocks_iteration(blocks);
    for (int i = 0; rc == 0 && i < COUNT; i++) {
        struct tide_block block = {.struct_bytes = sizeof block};
        snprintf(name, sizeof name, "layer %d", i);
        rc = tide_blocks_get(blocks, name, NULL, 0, &block);
        double *numbers = block.data;
        for (int n = 0; rc == 0 && n < NUMBERS; n++) {
            numbers[n] += 1;
        }
        rc = rc == 0 ? tide_blocks_release(blocks, name, 1) : rc;
    }
    return rc;
}

static int run(struct tide_blocks *blocks, double *numbers)
{
    char name[16];
    int rc = 0;
    for (int i = 0; rc == 0 && i < COUNT; i++) {
        snprintf(name, sizeof name, "layer %d", i);
        for (int n = 0; n < NUMBERS; n++) {
            numbers[n] = i;
        }
        rc = tide_blocks_put(blocks, name, numbers, NUMBERS * sizeof *numbers);
    }
    for (int i = 0; rc == 0 && i < ITERATIONS; i++) {
        rc = iterate(blocks);
    }
    for (int i = 0; rc == 0 && i < COUNT; i++) {
        snprintf(name, sizeof name, "layer %d", i);
        rc = tide_blocks_get(blocks, name, numbers, NUMBERS * sizeof *numbers, NULL);
        for (int n = 0; rc == 0 && n < NUMBERS; n++) {
            if (numbers[n] != i + ITERATIONS) {
                fprintf(stderr, "%s has a wrong number\n", name);
                return -1;
            }
        }
    }
    return rc;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
        return 2;
    }
    const struct tide_store_path store = {
        .struct_bytes = sizeof store, .directory = argv[1], .bytes = 64 << 20};
    const struct tide_blocks_options options = {
        .struct_bytes = sizeof options, .host_bytes = 16 << 20, .stores = &store, .store_count = 1};
    struct tide_blocks_stats stats = {.struct_bytes = sizeof stats};
    struct tide_blocks *blocks = NULL;
    double *numbers = malloc(NUMBERS * sizeof *numbers);
    int rc = numbers == NULL ? -1 : tide_blocks_create(NULL, &options, &blocks);
    rc = rc == 0 ? run(blocks, numbers) : rc;
    rc = rc == 0 ? tide_blocks_stats(blocks, &stats) : rc;
    if (rc != 0) {
        fprintf(stderr, "%s\n", tide_last_error());
    } else {
        printf("%d blocks in %.0f MB of memory; %llu read ahead; read %.0f MB, written %.0f MB\n",
               COUNT, (double)stats.host_peak_bytes / 1e6, (unsigned long long)stats.prefetches,
               (double)stats.read_bytes / 1e6, (double)stats.written_bytes / 1e6);
    }
    tide_blocks_destroy(blocks);
    free(numbers);
    return rc == 0 ? 0 : 1;
}
