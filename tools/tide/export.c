/* export.c: `tide export`: writes a checkpoint, or a model merged with its adapter, as a Hugging
 * Face folder. The main thread. */
#include <errno.h>
#include <tide/checkpoint.h>

#include "tools/tide/commands.h"
#include "tools/tide/finetune_context.h"
#include "tools/tide/out.h"

static int run(const struct cli_command *command, int argc, char **argv)
{
    const char *out = NULL;
    bool overwrite = false;
    bool merge = false;
    const struct cli_option options[] = {
        {.name = "out", .kind = CLI_TEXT, .value = "DIR", .out = &out, .help = "folder to write"},
        {.name = "merge",
         .kind = CLI_FLAG,
         .out = &merge,
         .help = "add a PEFT adapter, or the adapter of a checkpoint, to the weights of its base "
                 "model"},
        {.name = "overwrite",
         .kind = CLI_FLAG,
         .out = &overwrite,
         .help = "replace an existing model"},
    };
    struct cli_parsed parsed;
    int code = cli_parse(command, options, sizeof options / sizeof options[0], argc, argv, &parsed);
    if (code >= 0) {
        return code;
    }
    if (out == NULL) {
        return cli_fail(command, CLI_WRONG,
                        "--out DIR, the folder to write, is missing; see tide export --help");
    }
    if (parsed.count != (merge ? 2 : 1)) {
        return cli_fail(command, CLI_WRONG,
                        merge
                            ? "--merge needs two folders, BASE and ADAPTER; found %zu"
                            : "expected one CHECKPOINT, or --merge BASE ADAPTER; found %zu folders",
                        parsed.count);
    }
    char whole[PATH_MAX];
    int rc = cli_out_resolve(out, whole);
    const struct cli_out target = {.path = whole, .overwrite = overwrite};
    if (rc != 0 || (rc = cli_out_check(&target)) != 0) {
        return cli_fail(command, finetune_exit_code(rc), NULL);
    }
    rc = merge
             ? tide_adapter_merge(NULL, parsed.arguments[0], parsed.arguments[1], whole, overwrite)
             : tide_checkpoint_export(NULL, parsed.arguments[0], whole, overwrite);
    if (rc != 0) {
        const bool bad = rc == -EBADMSG;
        return cli_fail(command, bad ? CLI_NOT_VERIFIED : finetune_exit_code(rc), "%s",
                        tide_last_error());
    }
    if (merge && parsed.common.verbose >= 0) {
        fprintf(stderr, "tide export: the adapter %s is merged into the weights of %s\n",
                parsed.arguments[1], parsed.arguments[0]);
    }
    printf("%s\n", out);
    return cli_close(command, CLI_DONE);
}

const struct cli_command cli_command_export = {
    .name = "export",
    .summary = "write the Hugging Face folder of a checkpoint, or of a model and its adapter",
    .arguments = "CHECKPOINT",
    .usage = "CHECKPOINT --out DIR\n       tide export --merge BASE ADAPTER --out DIR",
    .arguments_min = 1,
    .arguments_max = 2,
    .example = "tide export tuned/checkpoint-500 --out model-500\n      writes what vLLM and "
               "transformers load; exit code 4 if the checkpoint is damaged",
    .run = run,
};
