/* test_inspect.c: tests tide_inspect and its command. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <tide/blocks.h>
#include <tide/inspect.h>
#include <unistd.h>

#include "tests/harness/child.h"
#include "tests/harness/test.h"

static void count_tensor(void *user, const struct tide_tensor *tensor)
{
    uint64_t *bytes = user;
    *bytes += tensor->bytes;
    check_true(tensor->name[0] != '\0' && tensor->file[0] == '/');
}

static const char *fixture(const char *name)
{
    static char path[600];
    snprintf(path, sizeof path, "%s/model/fixtures/%s", test_root(), name);
    return path;
}

/* A folder's figures are those of its config and files. */
static void folder(void)
{
    uint64_t bytes = 0;
    const struct tide_inspect_options options = {
        .struct_bytes = sizeof options, .tensor = count_tensor, .user = &bytes};
    struct tide_inspection one = {.struct_bytes = sizeof one};
    check_int(tide_inspect(NULL, fixture("qwen3_sharded"), &options, &one), ==, 0);
    check_uint(one.what, ==, TIDE_MODEL_FOLDER);
    check_string(one.problem, "");
    check_uint(one.verified, ==, 1);
    check_string(one.family, "qwen3");
    check_string(one.dtype, "bfloat16");
    check_uint(one.files, ==, 3);
    check_uint(one.parameters, ==, 24568);
    check_uint(one.bytes, ==, 2 * one.parameters);
    check_uint(bytes, ==, one.bytes);
    check_int(one.head_dim, ==, 10);
    check_int(one.layers, ==, 2);
    check_uint(one.tied, ==, 0);
}

/* A model with surplus tensors is valid; a note has the warning of a run. */
static void surplus(void)
{
    char command[3200];
    char path[600];
    struct tide_inspection one = {.struct_bytes = sizeof one};
    snprintf(path, sizeof path, "%s/surplus", test_directory());
    snprintf(command, sizeof command,
             "mkdir '%s' && cp '%s'/model.safetensors '%s' && "
             "sed 's/\"num_hidden_layers\": 2/\"num_hidden_layers\": 1/' '%s'/config.json "
             ">'%s'/config.json",
             path, fixture("llama"), path, fixture("llama"), path);
    check_int(system(command), ==, 0);
    check_int(tide_inspect(NULL, path, NULL, &one), ==, 0);
    check_uint(one.verified, ==, 1);
    check_int(one.layers, ==, 1);
    check_contains(one.note, "9 tensors are not part of the model");
    check_int(tide_inspect(NULL, fixture("llama"), NULL, &one), ==, 0);
    check_string(one.note, "");
}

/* Other formats and missing paths are errors. A folder without weights is a store or another
 * folder. */
static void others(void)
{
    struct tide_inspection one = {.struct_bytes = sizeof one};
    check_int(tide_inspect(NULL, fixture("gpt2/model.safetensors"), NULL, &one), ==, 0);
    check_uint(one.what, ==, TIDE_SAFETENSORS);
    check_uint(one.verified, ==, 1);
    check_uint(one.files, ==, 1);
    check_string(one.family, "");
    check_int(tide_inspect(NULL, fixture("gpt2/config.json"), NULL, &one), ==, -EINVAL);
    check_contains(tide_last_error(), "config.json is not a safetensors file");
    check_int(tide_inspect(NULL, test_directory(), NULL, &one), ==, 0);
    check_uint(one.verified, ==, 1); /* empty, like a store that no run uses */
    check_uint(one.what, ==, TIDE_STORE_FOLDER);
    test_file("letter", "dear", 4);
    check_int(tide_inspect(NULL, test_directory(), NULL, &one), ==, 0);
    check_uint(one.verified, ==, 0);
    check_uint(one.what, ==, TIDE_OTHER_FOLDER);
    check_contains(one.problem, "config.json");
    check_int(tide_inspect(NULL, "/nonexistent", NULL, &one), ==, -ENOENT);
    check_contains(tide_last_error(), "/nonexistent");
    check_int(tide_inspect(NULL, "/dev/null", NULL, &one), ==, -EINVAL);
    check_int(tide_inspect(NULL, NULL, NULL, &one), ==, -EINVAL);
}

static int command(const char *arguments, char *out, size_t bytes)
{
    char line[1400];
    const char *root = getenv("TIDE_BUILD_ROOT");
    snprintf(line, sizeof line, "%s/tools/tide inspect %s 2>&1", root != NULL ? root : "build",
             arguments);
    FILE *pipe = popen(line, "r");
    check_true(pipe != NULL);
    size_t got = fread(out, 1, bytes - 1, pipe);
    out[got] = '\0';
    return pclose(pipe) / 256;
}

/* Exit codes: 0; 4 if files do not match; 2 if a path is missing or has another format. */
static void prints(void)
{
    char out[16384];
    char arguments[700];
    check_int(command(fixture("gpt2"), out, sizeof out), ==, 0);
    check_contains(out, "K parameters, 2 layers, hidden 32");
    check_contains(out, "verified");
    snprintf(arguments, sizeof arguments, "%s --tensors", fixture("llama3"));
    check_int(command(arguments, out, sizeof out), ==, 0);
    check_contains(out, "model.layers.0.self_attn.k_proj.bias");
    snprintf(arguments, sizeof arguments, "--json %s", fixture("llama3"));
    check_int(command(arguments, out, sizeof out), ==, 0);
    check_contains(out, "\"verified\": true");
    check_contains(out, "\"tied\": true");
    check_int(command(fixture("gpt2/config.json"), out, sizeof out), ==, 2);
    check_contains(out, "config.json is not a safetensors file");
    /* A figure that could not be read is not printed as "0". */
    char path[600];
    const char *config = "{\"model_type\":\"llama\",\"vocab_size\":8,\"hidden_size\":4,"
                         "\"num_hidden_layers\":1,\"num_attention_heads\":1,"
                         "\"intermediate_size\":4}";
    check_int(mkdir(test_path("cut"), 0700), ==, 0);
    test_file("cut/config.json", config, strlen(config));
    test_file("cut/model.safetensors", "\x40\0\0\0\0\0\0\0{}", 10);
    check_int(command(test_path("cut"), out, sizeof out), ==, 4);
    check_contains(out, "WRONG: ");
    check_true(strstr(out, "tensors in") == NULL);
    /* A pipe is refused without waiting for a writer. */
    snprintf(path, sizeof path, "%s", test_path("cut/config.json"));
    check_int(unlink(path), ==, 0);
    check_int(mkfifo(path, 0600), ==, 0);
    check_int(command(test_path("cut"), out, sizeof out), ==, 4);
    check_contains(out, "config.json is not a regular file");
    check_int(command("/nonexistent", out, sizeof out), ==, 2);
    check_int(command("", out, sizeof out), ==, 2);
    check_int(command("--json /nonexistent", out, sizeof out), ==, 2);
    check_contains(out, "\"what\": null");
    check_contains(out, "\"problem\": \"/nonexistent cannot be opened");
    /* A store that no run uses is an empty folder, which is valid. */
    check_int(mkdir(test_path("empty"), 0700), ==, 0);
    check_int(command(test_path("empty"), out, sizeof out), ==, 0);
    check_contains(out, "empty: empty, like a store that no run uses");
    check_true(strstr(out, "WRONG") == NULL);
}

static int killed_with_blocks(void *argument)
{
    const struct tide_store_path store = {
        .struct_bytes = sizeof store, .directory = argument, .bytes = 2 << 20};
    const struct tide_blocks_options options = {
        .struct_bytes = sizeof options, .host_bytes = 1 << 20, .stores = &store, .store_count = 1};
    struct tide_blocks *blocks = NULL;
    const int rc = tide_blocks_create(NULL, &options, &blocks);
    if (rc == 0) {
        raise(SIGKILL);
    }
    return 1;
}

/* The block store of a killed application is recognised by the path of its file or folders. */
static void left_blocks(void)
{
    static const char *const parts[] = {"", "/", "/tide-blocks", "/tide-blocks/",
                                        "/tide-blocks/tide-extents"};
    char out[4096];
    char path[700];
    check_int(mkdir(test_path("blocks"), 0700), ==, 0);
    snprintf(path, sizeof path, "%s", test_path("blocks"));
    check_int(test_child(killed_with_blocks, path), ==, 256 + SIGKILL);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        struct tide_inspection one = {.struct_bytes = sizeof one};
        snprintf(path, sizeof path, "%s%s", test_path("blocks"), parts[i]);
        check_int(tide_inspect(NULL, path, NULL, &one), ==, 0);
        check_uint(one.what, ==, TIDE_BLOCKS_FOLDER);
        check_true(one.verified == 1 && one.files == 1 && one.process != 0);
        check_uint(one.bytes, >=, 2 << 20);
    }
    check_int(command(path, out, sizeof out), ==, 0);
    check_contains(out, ": block store of an application\n");
    check_true(strstr(out, "run") == NULL || strstr(out, "in use: a running") != NULL);
    snprintf(path, sizeof path, "--json %s", test_path("blocks"));
    check_int(command(path, out, sizeof out), ==, 0);
    check_contains(out, "\"what\": \"blocks\"");
    snprintf(path, sizeof path, "%s/tide-blocks/tide-extents", test_path("blocks"));
    check_int(truncate(path, 4096), ==, 0);
    check_int(command(path, out, sizeof out), ==, 4);
    check_contains(out, "WRONG: ");
}

TEST_MAIN({"folder", folder}, {"others", others}, {"prints", prints}, {"surplus", surplus},
          {"left_blocks", left_blocks})
