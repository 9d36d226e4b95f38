/* inspect.c: `tide inspect`: shows a model folder, checkpoint, store or safetensors file. The main
 * thread. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <tide/inspect.h>

#include "core/json/write.h"
#include "tools/tide/commands.h"

/* Version of the object that --json prints (docs/inspect-json.md). */
enum { SCHEMA_VERSION = 1 };

static void print_tensor(void *user, const struct tide_tensor *tensor)
{
    struct cli_table *table = user;
    char shape[160] = "";
    char bytes[32];
    for (uint32_t i = 0; i < tensor->dimensions; i++) {
        size_t at = strlen(shape);
        snprintf(shape + at, sizeof shape - at, "%s%" PRIu64, i > 0 ? " x " : "", tensor->shape[i]);
    }
    snprintf(bytes, sizeof bytes, "%" PRIu64, tensor->bytes);
    const char *slash = strrchr(tensor->file, '/');
    cli_table_add(table, (const char *const[]){tensor->name, tensor->dtype, shape, bytes,
                                               slash != NULL ? slash + 1 : tensor->file});
}

static void write_tensor(void *user, const struct tide_tensor *tensor)
{
    struct core_json_write *json = user;
    core_json_write_object_begin(json, NULL);
    core_json_write_string(json, "name", tensor->name);
    core_json_write_string(json, "file", tensor->file);
    core_json_write_string(json, "dtype", tensor->dtype);
    core_json_write_array_begin(json, "shape");
    for (uint32_t i = 0; i < tensor->dimensions; i++) {
        core_json_write_unsigned(json, NULL, tensor->shape[i]);
    }
    core_json_write_array_end(json);
    core_json_write_unsigned(json, "bytes", tensor->bytes);
    core_json_write_object_end(json);
}

static void print_safe(const char *text)
{
    cli_print_text(stdout, text, strlen(text));
}

static void print_verdict(bool verified, const char *verified_text, const char *problem)
{
    fputs("  ", stdout);
    fputs(verified ? verified_text : "WRONG: ", stdout);
    print_safe(problem);
    putchar('\n');
}

static const char *what_name(uint32_t what)
{
    return what == TIDE_MODEL_FOLDER     ? "model"
           : what == TIDE_CHECKPOINT     ? "checkpoint"
           : what == TIDE_STORE_FOLDER   ? "store"
           : what == TIDE_BLOCKS_FOLDER  ? "blocks"
           : what == TIDE_ADAPTER_FOLDER ? "adapter"
           : what == TIDE_BASE_FILE      ? "base"
           : what == TIDE_OTHER_FOLDER   ? "other"
                                         : "safetensors";
}

static void print_checkpoint(const struct tide_inspection *one)
{
    char bytes[CLI_NUMBER_BYTES];
    if (one->family[0] == '\0') { /* the manifest is unreadable */
        printf(": checkpoint\n");
    } else {
        printf(": checkpoint of a ");
        print_safe(one->family);
        printf(" run after step %" PRIu64 "\n  ", one->step);
        print_safe(one->optimizer);
        printf(" in ");
        print_safe(one->precision);
        printf(", %" PRIu64 " update%s; %" PRIu64 " tensors in %" PRIu64 " file%s, %s\n",
               one->updates, one->updates == 1 ? "" : "s", one->tensors, one->files,
               one->files == 1 ? "" : "s", cli_bytes_print(one->bytes, bytes));
        printf("  run %016" PRIx64 "\n", one->run);
    }
    print_verdict(one->verified, "verified: every byte", one->problem);
}

static bool is_store(const struct tide_inspection *one)
{
    return one->what == TIDE_STORE_FOLDER || one->what == TIDE_BLOCKS_FOLDER;
}

static void print_store(const struct tide_inspection *one)
{
    char bytes[CLI_NUMBER_BYTES];
    if (one->files == 0 && one->verified) {
        printf(one->note[0] != '\0' ? ": store that no run uses, with %s\n"
                                    : ": empty, like a store that no run uses%s\n",
               one->note);
        return;
    }
    const bool blocks = one->what == TIDE_BLOCKS_FOLDER;
    printf(blocks ? ": block store of an application" : ": store of a run");
    if (one->paths > 1) {
        printf(", %" PRIu32 " of %" PRIu32, one->path + 1, one->paths);
    }
    printf("\n  %" PRIu64 " extent file%s%s, %s\n", one->files, one->files == 1 ? "" : "s",
           blocks ? "" : " (one per rank)", cli_bytes_print(one->bytes, bytes));
    if (blocks && one->run != 0) {
        printf("  created by process %" PRIu64 "\n", one->process);
    } else if (one->run != 0) {
        printf("  run %016" PRIx64 ", created by process %" PRIu64 "\n", one->run, one->process);
    }
    printf("  %s\n",
           one->in_use ? "in use: a running process has it open"
           : blocks && one->verified
               ? "not in use: its process was killed; blocks do not outlive their process, "
                 "so the files can be removed, and the next block store there reuses them"
           : one->verified ? "not in use: its run ended without cleaning up; the next "
                             "run with this store reuses it"
                           : "not in use");
    print_verdict(one->verified,
                  blocks ? "verified: header and size (only its process can read the blocks)"
                         : "verified: headers and sizes (only the run itself can verify the "
                           "contents, whenever it reads them)",
                  one->problem);
}

static void print_base(const struct tide_inspection *one)
{
    char bytes[CLI_NUMBER_BYTES];
    printf(": base of adapters, kept by a run for later ones\n");
    if (one->bytes > 0) { /* else nothing was readable */
        printf("  %s, %s\n  ", one->precision, cli_bytes_print(one->bytes, bytes));
        print_safe(one->note);
        putchar('\n');
    }
    print_verdict(one->verified, "verified: every byte", one->problem);
}

static void print_text(const char *path, const struct tide_inspection *one)
{
    print_safe(path);
    if (one->what == TIDE_CHECKPOINT) {
        print_checkpoint(one);
        return;
    }
    if (is_store(one)) {
        print_store(one);
        return;
    }
    if (one->what == TIDE_BASE_FILE) {
        print_base(one);
        return;
    }
    const bool model = one->what == TIDE_MODEL_FOLDER;
    char number[CLI_NUMBER_BYTES];
    printf(": %s\n", model                              ? "model folder"
                     : one->what == TIDE_ADAPTER_FOLDER ? "adapter"
                     : one->what == TIDE_OTHER_FOLDER   ? "folder"
                                                        : "safetensors file");
    if (model && one->family[0] != '\0') {
        fputs("  ", stdout);
        print_safe(one->family);
        printf(": %s parameters, %" PRId64 " layer%s, hidden %" PRId64 ", inner %" PRId64
               "\n  %" PRId64 " heads of %" PRId64 " (%" PRId64 " for keys), vocabulary %" PRId64
               "%s, %" PRId64 " positions\n",
               cli_count_print(one->parameters, number), one->layers, one->layers == 1 ? "" : "s",
               one->hidden, one->inner, one->heads, one->head_dim, one->kv_heads, one->vocab,
               one->tied ? " (tied)" : "", one->positions);
    }
    if (one->rank > 0) {
        printf("  %s of rank %" PRIu64 ", alpha %g%s: %" PRIu64 " tensors adapted",
               one->dora ? "DoRA" : "LoRA", one->rank, one->alpha, one->rslora ? " (rsLoRA)" : "",
               one->adapted);
        if (one->saved > 0) {
            printf(", %" PRIu64 " replaced", one->saved);
        }
        putchar('\n');
    }
    if (one->files > 0) { /* else no file was readable */
        printf("  %" PRIu64 " tensors in %" PRIu64 " file%s, %s%s", one->tensors, one->files,
               one->files == 1 ? "" : "s", cli_bytes_print(one->bytes, number),
               one->dtype[0] != '\0' ? ", " : "");
        print_safe(one->dtype);
        putchar('\n');
    }
    print_verdict(one->verified, "verified: headers, names and shapes are consistent",
                  one->problem);
    if (one->note[0] != '\0') {
        fputs("  note: ", stdout);
        print_safe(one->note);
        putchar('\n');
    }
}

/* As text: many readers of JSON round numbers of 64 bits. */
static void write_run(struct core_json_write *json, uint64_t run)
{
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, run);
    core_json_write_string(json, "run", run != 0 ? text : NULL);
}

static void write_store(struct core_json_write *json, const struct tide_inspection *one)
{
    core_json_write_bool(json, "in_use", one->in_use);
    write_run(json, one->run);
    core_json_write_unsigned(json, "process", one->process);
    core_json_write_unsigned(json, "path_index", one->path);
    core_json_write_unsigned(json, "paths", one->paths);
}

/* `known`: whether tide_inspect() succeeded. */
static void write_figures(struct core_json_write *json, const struct tide_inspection *one,
                          bool known)
{
    core_json_write_string(json, "what", known ? what_name(one->what) : NULL);
    core_json_write_bool(json, "verified", one->verified);
    core_json_write_string(json, "problem",
                           !known          ? tide_last_error()
                           : one->verified ? NULL
                                           : one->problem);
    core_json_write_string(json, "note", one->note[0] != '\0' ? one->note : NULL);
    core_json_write_unsigned(json, "files", one->files);
    core_json_write_unsigned(json, "tensors", one->tensors);
    core_json_write_unsigned(json, "bytes", one->bytes);
    if (is_store(one)) {
        write_store(json, one);
        return;
    }
    if (one->what == TIDE_CHECKPOINT) {
        write_run(json, one->run);
        core_json_write_string(json, "family", one->family);
        core_json_write_unsigned(json, "step", one->step);
        core_json_write_unsigned(json, "updates", one->updates);
        core_json_write_string(json, "optimizer", one->optimizer);
        core_json_write_string(json, "precision", one->precision);
        return;
    }
    if (one->what == TIDE_BASE_FILE) {
        core_json_write_string(json, "precision", one->precision);
        return;
    }
    if (one->rank > 0) {
        core_json_write_unsigned(json, "rank", one->rank);
        core_json_write_real(json, "alpha", one->alpha);
        core_json_write_bool(json, "rslora", one->rslora);
        core_json_write_bool(json, "dora", one->dora);
        core_json_write_unsigned(json, "adapted", one->adapted);
        core_json_write_unsigned(json, "saved", one->saved);
        return;
    }
    if (one->family[0] == '\0') {
        return;
    }
    core_json_write_string(json, "family", one->family);
    core_json_write_string(json, "dtype", one->dtype[0] != '\0' ? one->dtype : NULL);
    core_json_write_unsigned(json, "parameters", one->parameters);
    core_json_write_integer(json, "vocab", one->vocab);
    core_json_write_integer(json, "hidden", one->hidden);
    core_json_write_integer(json, "layers", one->layers);
    core_json_write_integer(json, "heads", one->heads);
    core_json_write_integer(json, "kv_heads", one->kv_heads);
    core_json_write_integer(json, "head_dim", one->head_dim);
    core_json_write_integer(json, "inner", one->inner);
    core_json_write_integer(json, "positions", one->positions);
    core_json_write_bool(json, "tied", one->tied);
}

static int inspect_path(const struct cli_command *command, const char *path,
                        void (*tensor)(void *user, const struct tide_tensor *tensor), void *user,
                        struct tide_inspection *out)
{
    const struct tide_inspect_options options = {
        .struct_bytes = sizeof options, .tensor = tensor, .user = user};
    *out = (struct tide_inspection){.struct_bytes = sizeof *out};
    int rc = tide_inspect(NULL, path, &options, out);
    if (rc != 0) {
        return cli_fail(command, rc == -ENOENT || rc == -EINVAL ? CLI_WRONG : CLI_FAILED, "%s",
                        tide_last_error());
    }
    return out->verified ? CLI_DONE : CLI_NOT_VERIFIED;
}

static int inspect_json(const struct cli_command *command, const char *path)
{
    struct tide_inspection one;
    struct core_json_write json;
    core_json_write_init_file(&json, stdout);
    json.indent = 2;
    core_json_write_object_begin(&json, NULL);
    core_json_write_integer(&json, "schema_version", SCHEMA_VERSION);
    core_json_write_string(&json, "path", path);
    core_json_write_array_begin(&json, "list");
    int code = inspect_path(command, path, write_tensor, &json, &one);
    core_json_write_array_end(&json);
    write_figures(&json, &one, code == CLI_DONE || code == CLI_NOT_VERIFIED);
    core_json_write_object_end(&json);
    return cli_close_json(command, &json, code);
}

static int inspect_text(const struct cli_command *command, const char *path, bool tensors)
{
    struct tide_inspection one;
    struct cli_table *table = NULL;
    if (tensors && cli_table_create(5, &table) != 0) {
        return cli_fail(command, CLI_FAILED, NULL);
    }
    int code = inspect_path(command, path, tensors ? print_tensor : NULL, table, &one);
    if (code == CLI_DONE || code == CLI_NOT_VERIFIED) {
        if (table != NULL) {
            cli_table_print(table, stdout, "");
        }
        print_text(path, &one);
    }
    cli_table_destroy(table);
    return code;
}

static int run(const struct cli_command *command, int argc, char **argv)
{
    bool json = false;
    bool tensors = false;
    const struct cli_option options[] = {
        {.name = "tensors", .kind = CLI_FLAG, .out = &tensors, .help = "also list the tensors"},
        {.name = "json", .kind = CLI_FLAG, .out = &json, .help = "one JSON object"},
    };
    struct cli_parsed parsed;
    int code = cli_parse(command, options, sizeof options / sizeof options[0], argc, argv, &parsed);
    if (code >= 0) {
        return code;
    }
    code = json ? inspect_json(command, parsed.arguments[0])
                : inspect_text(command, parsed.arguments[0], tensors);
    return cli_close(command, code);
}

const struct cli_command cli_command_inspect = {
    .name = "inspect",
    .summary = "show and check what is in a model, checkpoint, store or safetensors file",
    .arguments = "PATH",
    .arguments_min = 1,
    .arguments_max = 1,
    .example = "tide inspect ./Qwen3-4B --tensors\n      family, sizes and types; exit code 4 if "
               "the files are inconsistent",
    .run = run,
};
