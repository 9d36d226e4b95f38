/* world.c: see world.h. */
#include "tests/api/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

void world_init(struct world *world)
{
    *world = (struct world){.batch = {.struct_bytes = sizeof world->batch}};
    world_files_init(world->model, world->rates, world->ids);
    snprintf(world->store, sizeof world->store, "%s/store", test_directory());
    world->batch.rows = WORLD_ROWS;
    world->batch.length = WORLD_LENGTH;
    world->batch.ids = world->ids;
    struct tide_engine_options *options = &world->options;
    tide_engine_options_init(options, sizeof *options);
    options->model = world->model;
    options->rates = world->rates;
    options->threads = 1;
    options->batch = WORLD_ROWS;
    options->length = WORLD_LENGTH;
    /* A sanitizer's memory counts, too. */
    options->device_bytes = options->host_bytes = (uint64_t)TEST_COUNT(256, 1024) << 20;
    options->store_count = 1;
    world->path = (struct tide_store_path){.struct_bytes = sizeof world->path,
                                           .directory = world->store,
                                           .bytes = UINT64_C(256) << 20};
    options->stores = &world->path;
    options->io = "mem";
    options->weights = options->states = TIDE_STORE;
    options->chunk_elements = 65536;
}

struct tide_engine *world_engine(const struct tide_engine_options *options)
{
    struct tide_engine *engine = NULL;
    int rc = tide_engine_create(NULL, options, &engine);
    if (rc != 0) {
        test_fail(__FILE__, __LINE__, "no engine, %d: %s", rc, tide_last_error());
    }
    return engine;
}

struct tide_step world_steps(const struct world *world, struct tide_engine *engine, unsigned steps)
{
    struct tide_step step = {.struct_bytes = sizeof step};
    for (unsigned s = 0; s < steps; s++) {
        int rc = tide_engine_step(engine, &world->batch, 1, 1e-3, &step);
        if (rc != 0) {
            test_fail(__FILE__, __LINE__, "step %u, %d: %s", s + 1, rc, tide_last_error());
        }
    }
    return step;
}

void world_spoil(const struct world *world, const char *folder, const char *tensor, uint16_t value)
{
    char command[1200];
    char path[600];
    char pattern[128];
    uint64_t header = 0;
    unsigned long long begin = 0;
    unsigned long long end = 0;
    snprintf(command, sizeof command, "cp -r '%s' '%s'", world->model, folder);
    check_int(system(command), ==, 0);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    FILE *file = fopen(path, "r+");
    check_true(file != NULL);
    check_uint(fread(&header, sizeof header, 1, file), ==, 1);
    char *text = calloc(1, header + 1);
    check_true(text != NULL && fread(text, 1, header, file) == header);
    snprintf(pattern, sizeof pattern, "%s\"", tensor);
    const char *at = strstr(text, pattern);
    check_true(at != NULL);
    at = strstr(at, "\"data_offsets\"");
    check_true(at != NULL && sscanf(at, "\"data_offsets\":[%llu,%llu]", &begin, &end) == 2);
    const unsigned long long middle = 8 + header + begin + (end - begin) / 4 * 2;
    check_int(fseek(file, (long)middle, SEEK_SET), ==, 0);
    check_uint(fwrite(&value, sizeof value, 1, file), ==, 1);
    check_int(fclose(file), ==, 0);
    free(text);
}

bool world_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}
