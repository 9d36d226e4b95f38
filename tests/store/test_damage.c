/* test_damage.c: a damaged checkpoint is refused; a forged manifest does not crash the reader. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "offload/store/manifest_seal.h"
#include "tests/harness/test.h"
#include "tests/store/case.h"

static const char *const files[] = {"manifest.json",      "sums.safetensors", "weights.safetensors",
                                    "master.safetensors", "m.safetensors",    "v.safetensors"};
enum { FILES = sizeof files / sizeof files[0] };

static uint64_t state = 12345;

static const char *path_of(const struct store_shelf *shelf, uint64_t step, const char *name)
{
    static char paths[4][900];
    static unsigned turn;
    char *path = paths[turn++ % 4];
    char folder[700];
    snprintf(path, 900, "%s/%s",
             store_shelf_path(store_shelf_directory(shelf), step, folder, sizeof folder), name);
    return path;
}

static void write_file(const char *path, const char *text, size_t bytes)
{
    FILE *file = fopen(path, "w");
    check_true(file != NULL);
    check_uint(fwrite(text, 1, bytes, file), ==, bytes);
    check_int(fclose(file), ==, 0);
}

/* Checks that the refusal names the file. */
static void check_refused(const struct store_shelf *shelf, const char *name, const char *what)
{
    int rc = case_compare(store_shelf_directory(shelf), 4);
    if (rc == 0 || strstr(core_err_message(), name) == NULL) {
        test_fail(__FILE__, __LINE__, "%s of %s: %d, \"%s\"", what, name, rc,
                  rc != 0 ? core_err_message() : "accepted");
    }
}

static void mutate(const char *path, const char *text, size_t bytes)
{
    char *copy = malloc(bytes + 64);
    size_t length = bytes;
    check_true(copy != NULL);
    memcpy(copy, text, bytes);
    memset(copy + bytes, 0, 64);
    switch (test_random(&state, 8)) {
    case 0: length = test_random(&state, bytes); break;
    case 1: length = bytes + 1 + test_random(&state, 63); break;
    case 2: copy[test_random(&state, bytes)] ^= (char)0xff; break;
    default: copy[test_random(&state, bytes)] ^= (char)(1 << test_random(&state, 8)); break;
    }
    write_file(path, copy, length);
    free(copy);
}

/* A checkpoint with a changed, missing or foreign file is refused. */
static void any_byte(void)
{
    struct store_shelf *shelf = case_shelf_in_memory();
    char *texts[FILES];
    size_t bytes[FILES];
    case_shrink(true);
    check_int(case_write(shelf, 3, 0, NULL), ==, 0);
    check_int(case_write(shelf, 4, 0, NULL), ==, 0);
    for (int i = 0; i < FILES; i++) {
        check_int(core_file_read(path_of(shelf, 4, files[i]), 1 << 20, &texts[i], &bytes[i]), ==,
                  0);
    }
    test_note("seed %" PRIu64, state);
    const int cases = test_full() ? 5000 : TEST_COUNT(1500, TEST_RACES ? 500 : 2000);
    for (int n = 0; n < cases; n += TEST_STRIDE(20)) {
        const int i = n % FILES;
        const char *path = path_of(shelf, 4, files[i]);
        mutate(path, texts[i], bytes[i]);
        check_refused(shelf, files[i], "a changed byte");
        write_file(path, texts[i], bytes[i]);
    }
    for (int i = 0; i < FILES; i++) {
        const char *path = path_of(shelf, 4, files[i]);
        check_int(unlink(path), ==, 0);
        check_refused(shelf, files[i], "the absence");
        check_int(symlink(path_of(shelf, 3, files[i]), path), ==, 0);
        check_refused(shelf, files[i], "a link in place");
        check_int(unlink(path), ==, 0);
        check_int(mkfifo(path, 0600), ==, 0);
        check_refused(shelf, files[i], "a pipe in place");
        check_int(unlink(path), ==, 0);
        if (i > 0) {
            check_int(link(path_of(shelf, 3, files[i]), path), ==, 0);
            check_refused(shelf, files[i], "the other step's");
            check_int(unlink(path), ==, 0);
        }
        write_file(path, texts[i], bytes[i]);
        free(texts[i]);
    }
    check_int(case_compare(store_shelf_directory(shelf), 4), ==, 0);
    store_shelf_close(shelf);
}

/* Parses a manifest that was changed and sealed again. */
static int parse_changed(const char *text, size_t bytes)
{
    char *sealed = NULL;
    size_t sealed_bytes = 0;
    struct store_manifest manifest = {.step = 0};
    check_int(store_manifest_seal(text, bytes, &sealed, &sealed_bytes), ==, 0);
    int rc = store_manifest_parse(sealed, sealed_bytes, "manifest.json", &manifest);
    if (rc != 0) {
        check_true(core_err_message()[0] != '\0');
    } else {
        struct store_image image;
        if (store_image_init(&image, &manifest.format, manifest.weight_dtype, manifest.blocks) ==
            0) {
            store_image_fini(&image);
        }
    }
    store_manifest_fini(&manifest);
    free(sealed);
    return rc;
}

static char *unsealed(const struct store_shelf *shelf, size_t *bytes)
{
    char *text = NULL;
    check_int(core_file_read(path_of(shelf, 4, "manifest.json"), 1 << 20, &text, bytes), ==, 0);
    *bytes -= 32; /* removes the seal with the end of the object */
    char *whole = malloc(*bytes + 8);
    check_true(whole != NULL);
    memcpy(whole, text, *bytes);
    memcpy(whole + *bytes, "\n}\n", 4);
    *bytes += 3;
    free(text);
    return whole;
}

static void every_field(void)
{
    static const struct {
        const char *from, *to, *message;
        int rc;
    } rows[] = {
        {"\"tide checkpoint\"", "\"tide checkpoin\"", "format", -EINVAL},
        {"\"version\": 1", "\"version\": 5", "this version of tide reads 1 to 4", -ENOTSUP},
        {"\"version\": 1", "\"version\": 0", "this version of tide reads 1 to 4", -ENOTSUP},
        {"\"version\": 1", "\"version\": \"1\"", "version", -EINVAL},
        {"\"step\": 4", "\"base\": \"12\", \"step\": 4", "base", -EINVAL},
        {"\"step\": 4", "\"part\": [], \"step\": 4", "part", -EINVAL},
        {"\"step\": 4", "\"part\": {\"ranks\": [1]}, \"step\": 4", "states_of", -EINVAL},
        {"\"step\": 4",
         "\"part\": {\"ranks\": [64], \"states_of\": 2, \"weights_of\": 1}, \"step\": 4",
         "expected ranks below 64", -EINVAL},
        {"\"step\": 4",
         "\"part\": {\"ranks\": [], \"states_of\": 2, \"weights_of\": 1}, \"step\": 4",
         "has no ranks", -EINVAL},
        {"\"step\": 4",
         "\"part\": {\"ranks\": [1], \"states_of\": 65, \"weights_of\": 1}, \"step\": 4",
         "states_of", -EINVAL},
        {"\"tensors\": []", "\"tensors\": [1]", "object", -EINVAL},
        {"\"tensors\": []", "\"tensors\": [{}]", "name", -EINVAL},
        {"\"step\": 4", "\"step\": -4", "step", -EINVAL},
        {"\"step\": 4", "\"stop\": 4", "step", -EINVAL},
        {"\"updates\": 3", "\"updates\": 5", "updates", -EINVAL},
        {"\"run\": \"00", "\"run\": \"0x", "run", -EINVAL},
        {"\"value\": 4.1", "\"value\": 0", "value", -EINVAL},
        {"\"BF16\"", "\"F32\"", "not the formats of any run", -EINVAL},
        {"\"m_bytes\": 4", "\"m_bytes\": 3", "not the formats of any run", -EINVAL},
        {"\"m_bytes\": 4", "\"m_bytes\": 1", "not the formats of any run", -EINVAL},
        {"\"weight_bytes\": 2", "\"weight_bytes\": 200", "weight_bytes", -EINVAL},
        {"\"cut_elements\": 65536", "\"cut_elements\": 65535", "cut_elements", -EINVAL},
        {"\"sums.safetensors\"", "\"../../etc/passwd\"", "not a plain file name", -EINVAL},
        {"\"name\": \"block 0\"", "\"name\": \"\"", "characters", -EINVAL},
        {"\"blocks\": [", "\"blocks\": [], \"others\": [", "blocks: has 0; expected 1 to", -EINVAL},
        {"\"beta1\"", "\"beta1 of a group whose name is far longer than that of any parameter\"",
         "has a name that is too long", -EINVAL},
        {"\"elements\": 384", "\"elements\": 1e30", "elements", -EINVAL},
        {"\"elements\": 384", "\"elements\": null", "elements", -EINVAL},
        {"\"trained\": true", "\"trained\": 1", "trained", -EINVAL},
        {"\"trained\": true", "\"trained\": true, \"weights\": \"F64\"", "weights", -EINVAL},
        {"\"trained\": true", "\"trained\": true, \"weights\": 16", "weights", -EINVAL},
        {"\"application\": \"", "\"application\": \"x", "hexadecimal", -EINVAL},
        {"\"files\": []", "\"files\": [1]", "object", -EINVAL},
        {"\"files\": []", "\"files\": {}", "files", -EINVAL},
    };
    struct store_shelf *shelf = case_shelf_in_memory();
    size_t bytes = 0;
    case_shrink(true);
    check_int(case_write(shelf, 4, 0, NULL), ==, 0);
    char *text = unsealed(shelf, &bytes);
    check_int(parse_changed(text, bytes), ==, 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char changed[8192];
        const char *at = strstr(text, rows[i].from);
        check_true(at != NULL && bytes + 64 < sizeof changed);
        const int length = snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text,
                                    rows[i].to, at + strlen(rows[i].from));
        int rc = parse_changed(changed, (size_t)length);
        if (rc != rows[i].rc || strstr(core_err_message(), rows[i].message) == NULL) {
            test_fail(__FILE__, __LINE__, "%s: %d, \"%s\"", rows[i].to, rc, core_err_message());
        }
    }
    for (int n = 0; n < TEST_COUNT(8000, 5000); n += TEST_STRIDE(20)) { /* must not crash */
        char changed[8192];
        memcpy(changed, text, bytes + 1);
        for (uint64_t i = test_random(&state, 3) + 1; i > 0; i--) {
            changed[test_random(&state, bytes - 3)] =
                "0123456789-+.eE\"{}[],: xtfn\\"[test_random(&state, 28)];
        }
        (void)parse_changed(changed, bytes);
    }
    free(text);
    store_shelf_close(shelf);
}

TEST_MAIN({"any_byte", any_byte}, {"every_field", every_field})
