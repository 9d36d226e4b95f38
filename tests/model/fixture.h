/* fixture.h: the folders of tests/model/fixtures, which transformers wrote
 * (tests/oracle/model_fixtures.py), and writers of invalid files. */
#ifndef TESTS_MODEL_FIXTURE_H
#define TESTS_MODEL_FIXTURE_H

#include <stddef.h>
#include <stdint.h>

#include "offload/model/files.h"
#include "offload/model/model.h"
#include "offload/model/safetensors.h"

extern const char *const fixture_names[];
extern const size_t fixture_count;

struct fixture {
    char folder[512];
    struct model_config config;
    struct model *model;              /* owned */
    struct model_files *files;        /* owned */
    struct model_safetensors *expect; /* owned: expect.safetensors */
};

/* Fails the case on an error. */
void fixture_open(struct fixture *fixture, const char *name);
void fixture_close(struct fixture *fixture);

/* Returns a tensor of expect.safetensors as floats (ids as integers); the caller frees it. */
float *fixture_floats(const struct fixture *fixture, const char *name, size_t *count);
int32_t *fixture_ids(const struct fixture *fixture, int64_t *rows, int64_t *length);

/* Returns |a - b| / |b| with Euclidean norms, or |a - b| if b is zero. */
double fixture_distance(const float *a, const float *b, size_t count);

/* Writes a safetensors file in the test directory: this header, then `data_bytes` zeros. Returns
 * its path. */
const char *fixture_safetensors(const char *name, const char *header, size_t data_bytes);

#endif
