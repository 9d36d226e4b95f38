/* finetune_world.c: connects the processes, and serves the first one. */
#include "tools/tide/finetune_world.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "tools/tide/finetune_context.h"
#include "tools/tide/finetune_stop.h"

static int asked_to_stop(void *user)
{
    (void)user;
    return finetune_stop_asked();
}

static struct tide_world_info describe(const struct tide_world *world)
{
    struct tide_world_info info = {.struct_bytes = sizeof info};
    (void)tide_world_describe(world, &info);
    return info;
}

static unsigned own_rank; /* read before MPI may set variables of a launcher */

static void write_line(void *user, uint32_t level, const char *line)
{
    (void)user;
    fprintf(stderr, "tide: rank %u: %s: ", own_rank, level == TIDE_LOG_ERROR ? "error" : "warn");
    cli_print_text(stderr, line, strlen(line));
    fputc('\n', stderr);
}

static struct tide_context *connecting; /* receives warnings about connections */

void finetune_world_close(struct tide_world *world, int code)
{
    tide_world_close(world, code);
    tide_context_destroy(connecting);
    connecting = NULL;
}

/* One process of a host logs warnings. */
static int follow(const struct cli_command *command, struct tide_world *world)
{
    struct tide_world_info info = describe(world);
    const struct tide_context_options options = {
        .struct_bytes = sizeof options,
        .log_level = info.first_on_host ? TIDE_LOG_WARN : TIDE_LOG_ERROR,
        .log = write_line,
    };
    struct tide_context *context = NULL;
    int code = CLI_FAILED;
    int rc = tide_context_create(&options, &context);
    if (rc == 0) {
        rc = tide_world_follow(world, context, &code);
    }
    if (rc != 0) {
        core_err_adopt(rc, tide_last_error());
        core_err_prefix(rc, "rank %" PRIu32, info.rank);
        code = cli_fail(command, CLI_FAILED, NULL);
    }
    tide_context_destroy(context);
    finetune_world_close(world, code);
    return code;
}

/* Copies the arguments except -q and -v. Returns the number of copies. */
static uint64_t select_compared(int argc, char **argv, const char **to)
{
    uint64_t count = 0;
    for (int i = 0; to != NULL && i < argc; i++) {
        if (!cli_is_loudness(argv[i])) {
            to[count++] = argv[i];
        }
    }
    return count;
}

int finetune_world_open(const struct cli_command *command, int argc, char **argv,
                        struct tide_world **out)
{
    /* The flags are parsed later, when the first process can report errors in them. */
    const char **compared = calloc((size_t)argc + 1, sizeof *compared);
    const char *dev = cli_find(argc, argv, "dev");
    const struct tide_context_options said = {
        .struct_bytes = sizeof said,
        .log_level = cli_loudness(argc, argv) < 0 ? TIDE_LOG_ERROR : TIDE_LOG_WARN,
        .log = write_line};
    own_rank = tide_world_rank();
    if (tide_context_create(&said, &connecting) != 0) {
        free(compared);
        return cli_fail(command, CLI_FAILED, "%s", tide_last_error());
    }
    const struct tide_world_options options = {
        .struct_bytes = sizeof options,
        .stop = asked_to_stop,
        .cards = dev != NULL && strncmp(dev, "cuda", 4) == 0,
        .rendezvous = cli_find(argc, argv, "rendezvous"),
        .arguments = compared,
        .argument_count = select_compared(argc, argv, compared),
        .context = connecting};
    struct tide_world *world = NULL;
    const bool leads = own_rank == 0;
    if (!leads) {
        finetune_stop_begin(); /* the first process decides what a signal does */
    }
    const int rc = tide_world_open(&options, &world);
    free(compared);
    if (rc != 0) {
        core_err_adopt(rc, tide_last_error());
        finetune_world_close(NULL, 0);
        /* No message: the first process has reported why it left, or a signal was the cause. Other
         * errors may concern this machine only. */
        if (!leads && (rc == -EPIPE || rc == -ECANCELED)) {
            return finetune_exit_code(rc);
        }
        if (!leads) {
            core_err_prefix(rc, "rank %u", own_rank);
        }
        return cli_fail(command, finetune_exit_code(rc), NULL);
    }
    if (!leads && world != NULL) {
        return follow(command, world);
    }
    finetune_stop_world(world);
    *out = world;
    return -1;
}

int finetune_world_count(const struct tide_world *world, struct finetune_flags *flags)
{
    const struct tide_world_info info = world != NULL ? describe(world)
                                                      : (struct tide_world_info){.ranks = 1};
    const bool torchrun = world != NULL && strcmp(info.launcher, "torchrun") == 0;
    if (flags->rendezvous != NULL && !torchrun) {
        return core_err_set(-EINVAL, "--rendezvous is for processes that torchrun started, but %s",
                            world == NULL ? "this one was started alone"
                                          : "mpirun or srun started these and connects them");
    }
    if (world == NULL) {
        return 0;
    }
    if (info.difference != NULL) {
        return core_err_set(-EINVAL, "%s: give all processes the same arguments", info.difference);
    }
    if (FINETUNE_GIVEN(flags, ranks) && flags->ranks != info.ranks) {
        return core_err_set(-EINVAL,
                            "--ranks %" PRId64 " contradicts %s, which started %" PRIu32
                            " processes: each is a rank, so leave --ranks out",
                            flags->ranks, info.launcher, info.ranks);
    }
    flags->ranks = info.ranks;
    return 0;
}

void finetune_world_print(const struct tide_world *world)
{
    const struct tide_world_info info = describe(world);
    fprintf(stderr, "%" PRIu32 " ranks in as many processes on %" PRIu32 " host%s: %s, %s\n",
            info.ranks, info.hosts, info.hosts == 1 ? "" : "s", info.launcher, info.library);
}
