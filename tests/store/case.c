/* case.c: see case.h. */
#include "tests/store/case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/err.h"
#include "core/base/size.h"
#include "offload/plan/shard.h"
#include "tests/harness/test.h"

static const char *format_name = "bf16";
static bool shrunk;
void (*case_guard)(bool inside);
int64_t case_limit_ns;

static void guard(bool inside)
{
    if (case_guard != NULL) {
        case_guard(inside);
    }
}

void case_format(const char *name, struct plan_format *format, char dtype[8])
{
    *format = (struct plan_format){
        .weight_bytes = 2, .master_bytes = 2, .m_bytes = 4, .v_bytes = 4, .grad_bytes = 2};
    snprintf(dtype, 8, "BF16");
    if (strcmp(name, "fp16") == 0) {
        format->master_bytes = 4;
        snprintf(dtype, 8, "F16");
    } else if (strcmp(name, "8bit") == 0 || strcmp(name, "mixed") == 0) {
        format->m_bytes = format->v_bytes = 1;
        format->q8_block = 256;
    }
}

void case_shrink(bool small)
{
    shrunk = small;
}

void case_set_format(const char *name)
{
    format_name = name;
}

static struct blocks *make_blocks(const char *const *names, const uint64_t *elements,
                                  uint32_t count, const enum block_weights *weights)
{
    struct blocks *blocks = NULL;
    uint64_t first = 0;
    check_int(blocks_create(&blocks), ==, 0);
    for (uint32_t b = 0; b < count; b++) {
        check_int(blocks_add(blocks, names[b]), ==, 0);
        if (weights != NULL) {
            blocks_set_weights(blocks, weights[b]);
        }
        check_int(blocks_add_array(blocks, elements[b], 0, b + 1 < CASE_BLOCKS, &first), ==, 0);
    }
    check_int(blocks_finish(blocks, "paper", 5), ==, 0);
    return blocks;
}

struct blocks *case_blocks(const char *const *names, const uint64_t *elements, uint32_t count)
{
    return make_blocks(names, elements, count, NULL);
}

static const struct blocks *run_blocks(void)
{
    static const char *const names[CASE_BLOCKS] = {"block 0", "block 1", "block 2"};
    static const uint64_t sizes[2][CASE_BLOCKS] = {{70000, 131072, 128}, {384, 256, 128}};
    static const enum block_weights mixed[CASE_BLOCKS] = {BLOCK_WEIGHTS_FP32, BLOCK_WEIGHTS_FP16};
    static struct blocks *made[2][2];
    const bool mixes = strcmp(format_name, "mixed") == 0;
    if (made[shrunk][mixes] == NULL) {
        made[shrunk][mixes] = make_blocks(names, sizes[shrunk], CASE_BLOCKS, mixes ? mixed : NULL);
    }
    return made[shrunk][mixes];
}

static void describe(uint64_t step, struct store_manifest *out)
{
    struct store_manifest manifest = {.run = 77,
                                      .step = step,
                                      .updates = step > 0 ? step - 1 : 0,
                                      .scale = {.value = 0.1 + (double)step, .steps = step},
                                      .blocks = run_blocks()};
    case_format(format_name, &manifest.format, manifest.weight_dtype);
    manifest.parameters[0] = (struct store_parameter){"optimizer", "adamw"};
    manifest.parameters[1] = (struct store_parameter){"beta1", "0.9"};
    manifest.parameter_count = 2;
    check_int(store_manifest_set_application(&manifest, &step, sizeof step), ==, 0);
    *out = manifest;
}

static char *content(const struct store_image *image, enum store_stream stream, uint32_t block,
                     uint64_t step)
{
    const uint64_t bytes = store_image_bytes(image, stream, block);
    char *made = NULL;
    uint64_t state = step * 64 + block * 8 + (uint64_t)stream + 1;
    if (bytes == 0) {
        return NULL;
    }
    made = aligned_alloc(4096, core_round_up(bytes, 4096));
    check_true(made != NULL);
    for (uint64_t i = 0; i < bytes; i++) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
        made[i] = (char)(state >> 56);
    }
    return made;
}

static uint64_t stream_offset(const struct store_image *image, enum store_stream stream,
                              uint32_t block, uint64_t element)
{
    return element == 0
               ? 0
               : store_image_cut(image, stream, block, element / PLAN_CUT_ELEMENTS).offset -
                     store_image_cut(image, stream, block, 0).offset;
}

static int put_block(struct store_checkpoint_write *write, const struct store_image *image,
                     uint32_t block, uint64_t step)
{
    char *whole[STORE_STREAM_COUNT];
    const uint64_t elements = image->blocks->list[block].elements;
    int rc = 0;
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        whole[s] = content(image, (enum store_stream)s, block, step);
    }
    for (uint64_t at = 0; rc == 0 && at < elements; at += PLAN_CUT_ELEMENTS) {
        const uint64_t left = elements - at;
        struct store_arrays arrays = {{NULL}};
        for (int s = 0; s < STORE_STREAM_COUNT; s++) {
            arrays.at[s] = whole[s] != NULL
                               ? whole[s] + stream_offset(image, (enum store_stream)s, block, at)
                               : NULL;
        }
        guard(true);
        const uint64_t count = left < PLAN_CUT_ELEMENTS ? left : PLAN_CUT_ELEMENTS;
        rc = block == 0 ? store_checkpoint_put(write, block, at, count, &arrays)
                        : store_checkpoint_put_begin(write, block, at, count, &arrays);
        guard(false);
    }
    guard(true);
    const struct core_err kept = core_err_keep(rc);
    const int ended = store_checkpoint_put_wait(write, store_checkpoint_put_tail(write));
    rc = core_err_first(&kept, ended);
    guard(false);
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        free(whole[s]);
    }
    return rc;
}

int case_put(struct store_checkpoint_write *write, uint64_t step)
{
    struct plan_format format;
    struct store_image image;
    char dtype[8];
    case_format(format_name, &format, dtype);
    int rc = store_image_init(&image, &format, dtype, run_blocks());
    for (uint32_t b = 0; rc == 0 && b < CASE_BLOCKS; b++) {
        rc = put_block(write, &image, b, step);
    }
    store_image_fini(&image);
    return rc;
}

int case_write(struct store_shelf *shelf, uint64_t step, uint32_t keep,
               const struct aio_backend *recipe)
{
    const struct store_checkpoint_options options = {.shelf = shelf,
                                                     .keep = keep,
                                                     .backend = "threads",
                                                     .recipe = recipe,
                                                     .limit_ns = case_limit_ns};
    struct store_checkpoint_write *write = NULL;
    struct store_manifest manifest;
    describe(step, &manifest);
    guard(true);
    int rc = store_checkpoint_begin(&options, &manifest, &write);
    guard(false);
    rc = rc != 0 ? rc : case_put(write, step);
    guard(true);
    rc = rc != 0 ? rc : store_checkpoint_finish(write);
    const struct core_err kept = core_err_keep(rc);
    const int ended = store_checkpoint_end(write);
    guard(false);
    return core_err_first(&kept, ended);
}

static int compare_block(struct store_checkpoint *checkpoint, uint32_t block, uint64_t step)
{
    const struct store_image *image = store_checkpoint_image(checkpoint);
    struct store_arrays arrays = {{NULL}};
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        const uint64_t bytes = store_image_bytes(image, (enum store_stream)s, block);
        arrays.at[s] = bytes > 0 ? aligned_alloc(4096, core_round_up(bytes, 4096)) : NULL;
    }
    int rc = store_checkpoint_read(checkpoint, block, 0, image->blocks->list[block].elements,
                                   &arrays);
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        char *expected = content(image, (enum store_stream)s, block, step);
        if (rc == 0 && expected != NULL) {
            check_memory(arrays.at[s], expected,
                         store_image_bytes(image, (enum store_stream)s, block));
        }
        free(expected);
        free(arrays.at[s]);
    }
    return rc;
}

int case_compare(const char *directory, uint64_t step)
{
    struct store_checkpoint *checkpoint = NULL;
    char path[700];
    store_shelf_path(directory, step, path, sizeof path);
    int rc = store_checkpoint_open(path, "threads", NULL, &checkpoint);
    rc = rc != 0 ? rc : store_checkpoint_verify(checkpoint, NULL, NULL, NULL);
    for (uint32_t b = 0; rc == 0 && b < CASE_BLOCKS; b++) {
        rc = compare_block(checkpoint, b, step);
    }
    const struct core_err kept = core_err_keep(rc);
    return core_err_first(&kept, store_checkpoint_close(checkpoint));
}

uint64_t case_newest(const char *directory)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    uint64_t found = 0;
    check_int(store_shelf_list(directory, &steps, &count), ==, 0);
    for (size_t i = count; found == 0 && i-- > 0;) {
        found = case_compare(directory, steps[i]) == 0 ? steps[i] : 0;
    }
    free(steps);
    return found;
}

struct store_shelf *case_shelf(void)
{
    static unsigned number;
    char directory[600];
    struct store_shelf *shelf = NULL;
    snprintf(directory, sizeof directory, "%s/shelf %u", test_directory(), ++number);
    check_int(store_shelf_open(directory, &shelf), ==, 0);
    return shelf;
}

struct store_shelf *case_shelf_in_memory(void)
{
    test_directory_in_memory();
    return case_shelf();
}
