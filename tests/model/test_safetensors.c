/* test_safetensors.c: the rules of the header, and reading. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "offload/model/safetensors.h"
#include "tests/harness/test.h"
#include "tests/model/fixture.h"

#define ENTRY(name, type, shape, begin, end)                                                       \
    "\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end  \
    "]}"

static void refuses(void)
{
    static const struct {
        const char *header;
        size_t data_bytes;
        const char *says;
    } cases[] = {
        {"", 0, "does not begin with '{'"},
        {" {}", 0, "does not begin with '{'"},
        {"[]", 0, "does not begin with '{'"},
        {"{", 0, "header"},
        {"{}}", 0, "header"},
        {"{} x", 0, "header"},
        {"{}", 4, "4 bytes follow the last tensor"},
        {"{" ENTRY("a", "F32", "[2]", 0, 8) "}", 4, "truncated"},
        {"{" ENTRY("a", "F32", "[2]", 0, 8) "}", 9, "1 bytes follow"},
        {"{" ENTRY("a", "F32", "[2]", 4, 12) "}", 12, "a gap"},
        {"{" ENTRY("a", "F32", "[2]", 0, 8) "," ENTRY("b", "F32", "[2]", 4, 12) "}", 12,
         "an overlap"},
        {"{" ENTRY("a", "F32", "[2]", 0, 8) "," ENTRY("b", "F32", "[2]", 12, 20) "}", 20, "a gap"},
        {"{" ENTRY("a", "F32", "[1]", 0, 4) "," ENTRY("a", "F32", "[1]", 4, 8) "}", 8,
         "duplicate key \"a\""},
        {"{" ENTRY("a", "F32", "[1]", 0, 4) "," ENTRY("\\u0061", "F32", "[1]", 4, 8) "}", 8,
         "duplicate key \"a\""},
        {"{" ENTRY("a", "F32", "[3]", 0, 8) "}", 8, "12 bytes by dtype and shape and 8"},
        {"{" ENTRY("a", "F32", "[4294967296,4294967296]", 0, 8) "}", 8, "more than 2^64 bits"},
        {"{" ENTRY("a", "F32", "[4611686018427387904]", 0, 0) "}", 0, "more than 2^64 bits"},
        {"{" ENTRY("a", "F32", "[2]", 8, 0) "}", 8, "ends before it begins"},
        {"{" ENTRY("a", "F32", "[-2]", 0, 8) "}", 8, "not a list of at most 8 sizes"},
        {"{" ENTRY("a", "F32", "[2.0]", 0, 8) "}", 8, "not a list of at most 8 sizes"},
        {"{" ENTRY("a", "F32", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4,
         "not a list of at most 8 sizes"},
        {"{" ENTRY("a", "Q4", "[2]", 0, 8) "}", 8, "unknown type \"Q4\""},
        {"{" ENTRY("a", "F4", "[3]", 0, 1) "}", 1,
         "tensor a has 3 elements of 4 bits, which are no whole number of bytes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "lacks data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
         "duplicate key \"dtype\""},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}", 8,
         "unknown key \"x\""},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,9]}}", 8, "two numbers"},
        {"{\"a\":[1]}", 0, "not an object"},
        {"{\"a\\u0000b\":{}}", 0, "NUL"},
        {"{\"__metadata__\":{\"format\":1}}", 0, "strings"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "duplicate key \"__metadata__\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_safetensors *file = NULL;
        const char *path = fixture_safetensors("bad.safetensors", cases[i].header,
                                               cases[i].data_bytes);
        check_int(model_safetensors_open(path, &file), ==, -EINVAL);
        check_contains(core_err_message(), cases[i].says);
        check_contains(core_err_message(), "bad.safetensors");
    }
}

static void refuses_lengths(void)
{
    struct model_safetensors *file = NULL;
    const unsigned char far[8] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    check_int(model_safetensors_open(test_file("far", far, 8), &file), ==, -EINVAL);
    const unsigned char big[8] = {0, 0xe2, 0xf5, 0x06}; /* above 100,000,000 */
    const char *large = test_file("big", big, 8);
    check_int(truncate(large, 200000000), ==, 0); /* a hole */
    check_int(model_safetensors_open(large, &file), ==, -EINVAL);
    check_contains(core_err_message(), "100000000");
    check_int(model_safetensors_open(test_file("short", big, 7), &file), ==, -EINVAL);
    check_contains(core_err_message(), "7 bytes cannot be a safetensors file");
    check_int(model_safetensors_open("/nonexistent/x", &file), ==, -ENOENT);
    check_int(model_safetensors_open(test_directory(), &file), ==, -EINVAL);
    check_contains(core_err_message(), "not a regular file");
    char pipe_path[600]; /* has no writer; opening it must not wait for one */
    snprintf(pipe_path, sizeof pipe_path, "%s/pipe.safetensors", test_directory());
    check_int(mkfifo(pipe_path, 0600), ==, 0);
    check_int(model_safetensors_open(pipe_path, &file), ==, -EINVAL);
    check_contains(core_err_message(), "pipe.safetensors: is not a regular file");
}

/* What the format allows is read. */
static void accepts(void)
{
    struct model_safetensors *file = NULL;
    const char *path = fixture_safetensors(
        "good.safetensors",
        "{\"__metadata__\":{\"format\":\"pt\"}," ENTRY("b\\u00e9", "I64", "[]", 8, 16) "," ENTRY(
            "empty", "F32", "[0,5]", 8, 8) "," ENTRY("a", "BF16", "[2,2]", 0, 8) "}   ",
        16);
    check_int(model_safetensors_open(path, &file), ==, 0);
    size_t count;
    const struct model_tensor *list = model_safetensors_list(file, &count);
    check_uint(count, ==, 3);
    check_string(list[0].name, "a");
    check_string(list[1].name, "empty");
    check_string(list[2].name, "b\xc3\xa9");
    check_string(model_safetensors_path(file), path);
    const struct model_tensor *tensor = model_safetensors_find(file, "a");
    check_true(tensor == &list[0]);
    check_true(model_safetensors_find(file, "c") == NULL);
    check_int(tensor->dtype, ==, MODEL_BF16);
    check_string(list[2].dtype_name, "I64");
    unsigned char bytes[8];
    check_int(model_safetensors_read(file, tensor, 4, bytes, 4), ==, 0);
    check_int(model_safetensors_read(file, tensor, 4, bytes, 5), ==, -EINVAL);
    check_int(model_safetensors_read(file, tensor, 9, bytes, 0), ==, -EINVAL);
    model_safetensors_expect(file, tensor, 4, 4); /* advice beyond the end has no effect */
    model_safetensors_expect(file, tensor, 4, 500);
    model_safetensors_expect(file, tensor, 9, 0);
    check_int(model_safetensors_read(file, tensor, 4, bytes, 4), ==, 0);
    model_safetensors_close(file);
}

/* A file that became shorter after it was opened is an error, not a signal. */
static void file_shrinks(void)
{
    struct model_safetensors *file = NULL;
    const char *path = fixture_safetensors("shrinks.safetensors",
                                           "{" ENTRY("a", "F32", "[4]", 0, 16) "}", 16);
    check_int(model_safetensors_open(path, &file), ==, 0);
    check_int(truncate(path, 70), ==, 0);
    unsigned char bytes[16];
    check_int(model_safetensors_read(file, model_safetensors_find(file, "a"), 0, bytes, 16), ==,
              -EIO);
    check_contains(core_err_message(), "ends at byte 70");
    model_safetensors_close(file);
}

/* Tensors are sorted by their places. A truncated header is refused. */
static void many(void)
{
    enum { COUNT = 10000, ENTRY_BYTES = 80 };
    char *text = malloc((size_t)COUNT * ENTRY_BYTES);
    check_true(text != NULL);
    size_t at = 0;
    text[at++] = '{';
    for (int i = COUNT - 1; i >= 0; i--) {
        at += (size_t)snprintf(
            text + at, ENTRY_BYTES,
            "\"t%d\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[%d,%d]}%s", i, 2 * i,
            2 * i + 2, i > 0 ? "," : "}");
    }
    struct model_safetensors_table table;
    check_int(model_safetensors_parse(text, at, 2 * COUNT, &table), ==, 0);
    check_uint(table.count, ==, COUNT);
    check_string(table.tensors[77].name, "t77");
    model_safetensors_table_fini(&table);
    check_int(model_safetensors_parse(text, at - 1, 2 * COUNT, &table), ==, -EINVAL);
    free(text);
}

/* Widening conversions are exact; narrowing ones round to nearest even. */
static void converts(void)
{
    const float values[] = {1.0f, -2.5f, 1.00390625f, 3.0e38f, 0.0f, INFINITY};
    uint16_t half[6];
    float back[6];
    model_convert(half, MODEL_BF16, values, MODEL_F32, 6);
    model_convert(back, MODEL_F32, half, MODEL_BF16, 6);
    check_double(back[1], ==, -2.5);
    check_double(back[2], ==, 1.0); /* halfway: rounded to even */
    check_true(isinf(back[5]));
    model_convert(half, MODEL_F16, values, MODEL_F32, 6);
    model_convert(back, MODEL_F32, half, MODEL_F16, 6);
    check_double(back[2], ==, 1.00390625);
    check_true(isinf(back[3]));
    model_convert(half, MODEL_BF16, half, MODEL_F16, 0);
    check_int(model_dtype_from_name("BF16"), ==, MODEL_BF16);
    check_int(model_dtype_from_name("F32"), ==, MODEL_F32);
    check_int(model_dtype_from_name("F8_E4M3"), ==, MODEL_OTHER);
    check_int(model_dtype_from_config("torch.bfloat16"), ==, MODEL_BF16);
    check_int(model_dtype_from_config("float64"), ==, MODEL_OTHER);
    check_string(model_dtype_config_name(MODEL_F16), "float16");
    check_string(model_dtype_name(MODEL_BF16), "BF16");
    check_uint(model_dtype_bytes(MODEL_F32), ==, 4);
}

TEST_MAIN({"refuses", refuses}, {"refuses_lengths", refuses_lengths}, {"accepts", accepts},
          {"file_shrinks", file_shrinks}, {"many", many}, {"converts", converts})
