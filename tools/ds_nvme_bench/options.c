/* options.c: parses the command line. */
#include "tools/ds_nvme_bench/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aio/queue.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "tools/ds_nvme_bench/lists.h"
#include "tools/ds_nvme_bench/wear.h"

#define NO_GPU                                                                                     \
    "GPU memory and GDS are not measured; optimizer states move between the drive and host memory"

/* Options of fio, ds_io and ds_nvme_tune, with replacements. */
static const struct cli_synonym synonyms[] = {
    {"folder", "--nvme_dir DIR"},
    {"directory", "--nvme_dir DIR"},
    {"bs", "--block_size LIST"},
    {"iodepth", "--queue_depth LIST"},
    {"numjobs", "--threads LIST"},
    {"io_parallel", "--threads LIST"},
    {"intra_op_parallelism", "--threads LIST"},
    {"multi_process", "--threads LIST"},
    {"size", "--io_size SIZE"},
    {"ioengine", "--backend NAME"},
    {"rw", "--op LIST"},
    {"readwrite", "--op LIST"},
    {"read", "--op read"},
    {"no_read", "--op write"},
    {"no_write", "--op read"},
    {"validate", "--mode verify"},
    {"verify", "--mode verify"},
    {"verbose", "-v"},
    {"sweep_config", "--full with --block_size, --queue_depth and --threads"},
    {"gpu", NO_GPU},
    {"gds", NO_GPU},
    {"use_gds", NO_GPU},
    {NULL, NULL},
};

const struct cli_command bench_command = {
    .program = "ds_nvme_bench",
    .summary = "find the best I/O setting for a drive",
    .arguments = "DIR...",
    .arguments_min = 0,
    .arguments_max = BENCH_DIRS_MAX,
    .synonyms = synonyms,
    .example = "ds_nvme_bench --nvme_dir /nvme0/scratch --params 7B --emit-config aio.json\n"
               "  sweeps in under a minute and writes the aio block for ds_config.json"};

struct raw {
    struct cli_texts dirs;
    int mode;
    const char *ops;
    const char *blocks;
    const char *depths;
    const char *threads;
    uint64_t io_bytes;
    double runtime;
    double ramp;
    int64_t loops;
    const char *backend;
    bool full;
    int fixed;
    int files;
    int pages;
    bool sqpoll;
    bool iopoll;
    const char *numa;
    int checksum;
    uint64_t tensor_bytes;
    const char *tolerance;
    const char *params;
    double tbw;
};

static const char *const modes[] = {"sweep", "point", "verify", "swap", "soak"};

const char *bench_mode_name(enum bench_mode mode)
{
    return modes[mode];
}

static int take_ops(const struct raw *raw, bool ops[BENCH_OP_COUNT])
{
    char copy[64];
    snprintf(copy, sizeof copy, "%s", raw->ops);
    char *rest = NULL;
    for (char *item = strtok_r(copy, ",", &rest); item != NULL; item = strtok_r(NULL, ",", &rest)) {
        int op = 0;
        while (op < BENCH_OP_COUNT && strcmp(item, bench_op_name((enum bench_op)op)) != 0) {
            op++;
        }
        if (op == BENCH_OP_COUNT) {
            return core_err_set(-EINVAL, "--op takes read, write and rw, not \"%s\"", item);
        }
        ops[op] = true;
    }
    return ops[BENCH_READ] || ops[BENCH_WRITE] || ops[BENCH_RW]
               ? 0
               : core_err_set(-EINVAL, "--op is empty; it takes read, write and rw");
}

/* Parses "10%" or "0.1". */
static int take_tolerance(const char *text, double *out)
{
    char *end = NULL;
    double value = strtod(text, &end);
    if (end != text && *end == '%') {
        value /= 100;
        end++;
    }
    if (end == text || *end != '\0' || !(value >= 0) || value >= 1) {
        return core_err_set(-EINVAL, "--tolerance takes a share such as 10%% or 0.1, not \"%s\"",
                            text);
    }
    *out = value;
    return 0;
}

static int take_node(const char *text, struct bench_how *how)
{
    char *end = NULL;
    long node = strtol(text, &end, 10);
    if (strcmp(text, "auto") == 0 || strcmp(text, "off") == 0) {
        how->node = strcmp(text, "auto") == 0 ? BENCH_NODE_AUTO : BENCH_NODE_ANY;
        return 0;
    }
    if (end == text || *end != '\0' || node < 0 || node > 1023) {
        return core_err_set(-EINVAL, "--numa takes auto, off or the number of a node, not \"%s\"",
                            text);
    }
    how->node = (int)node;
    return 0;
}

/* ---- from raw options to settings ---- */

static void default_lists(const struct raw *raw, struct bench_options *out, const char **blocks,
                          const char **depths, const char **threads)
{
    bool wide = out->mode == BENCH_SWEEP;
    const char *all = out->sweep.how.checksums ? "1M,2M,4M,8M" : "128K,256K,512K,1M,2M,4M,8M";
    *blocks = raw->blocks != NULL ? raw->blocks : wide ? all : "1M";
    *depths = raw->depths != NULL ? raw->depths : wide ? "1,2,4,8,16,32,64,128,256" : "32";
    *threads = raw->threads != NULL ? raw->threads : wide && !raw->full ? "1,2" : "1";
}

static int take_lists(const struct raw *raw, struct bench_options *out)
{
    struct bench_sweep_options *sweep = &out->sweep;
    const char *blocks;
    const char *depths;
    const char *threads;
    default_lists(raw, out, &blocks, &depths, &threads);
    int rc = take_ops(raw, sweep->ops);
    if (rc != 0 ||
        (rc = bench_list_parse("block_size", blocks, true, 256 << 20, sweep->blocks,
                               &sweep->block_count)) != 0 ||
        (rc = bench_list_parse("queue_depth", depths, false, AIO_DEPTH_MAX, sweep->depths,
                               &sweep->depth_count)) != 0 ||
        (rc = bench_list_parse("threads", threads, false, 16, sweep->threads,
                               &sweep->thread_count)) != 0) {
        return rc;
    }
    for (unsigned b = 0; rc == 0 && sweep->how.checksums && b < sweep->block_count; b++) {
        if (sweep->blocks[b] % AIO_SUM_BYTES != 0) {
            rc = core_err_set(
                -EINVAL, "--checksum xxh3 covers whole MiB: --block_size must be a multiple of 1M");
        }
    }
    return rc;
}

static void take_times(const struct raw *raw, struct bench_options *out)
{
    struct bench_sweep_options *sweep = &out->sweep;
    bool soak = out->mode == BENCH_SOAK;
    bool sweeping = out->mode == BENCH_SWEEP && !raw->full;
    double runtime = raw->runtime > 0 ? raw->runtime : soak ? 60 : raw->full ? 5 : 3;
    sweep->grid = !sweeping;
    sweep->rounds = raw->loops > 0 ? (unsigned)raw->loops : soak ? 1 : 3;
    sweep->how.ramp_seconds = raw->ramp >= 0 ? raw->ramp : soak ? 0 : 0.2;
    if (sweeping && (raw->loops > 0 || raw->ramp >= 0)) {
        core_log(CORE_LOG_WARN,
                 "the adaptive sweep chooses the number and length of its measurements itself: "
                 "--loops and --ramp_time are for --full and --mode point");
    }
    /* Many visits take fewer samples, but at least one: --loops is at most 60. */
    unsigned most = BENCH_SAMPLES_MAX / sweep->rounds;
    sweep->how.samples = soak ? 60 : 5;
    sweep->how.samples = sweep->how.samples > most ? most : sweep->how.samples;
    sweep->how.sample_seconds = runtime / sweep->how.samples / sweep->rounds;
    sweep->budget_seconds = raw->runtime > 0 && sweeping ? raw->runtime : 44;
    out->passes = raw->loops > 0 ? (unsigned)raw->loops : out->mode == BENCH_VERIFY ? 2 : 5;
}

static int take_dirs(const struct raw *raw, const struct cli_parsed *parsed,
                     struct bench_options *out)
{
    size_t count = raw->dirs.count + parsed->count;
    if (count == 0) {
        return core_err_set(-EINVAL,
                            "--nvme_dir DIR is missing: expected the directory to measure");
    }
    if (count > BENCH_DIRS_MAX) {
        return core_err_set(-EINVAL, "%zu directories are too many; the maximum is %d", count,
                            BENCH_DIRS_MAX);
    }
    for (size_t i = 0; i < count; i++) {
        const char *dir = i < raw->dirs.count ? raw->dirs.items[i]
                                              : parsed->arguments[i - raw->dirs.count];
        for (unsigned k = 0; k < out->dir_count; k++) {
            if (strcmp(out->dirs[k], dir) == 0) {
                return core_err_set(-EINVAL, "%s is named twice", dir);
            }
        }
        out->dirs[out->dir_count++] = dir;
    }
    return 0;
}

/* Other back ends are for tests. */
static int check_backend(const char *name)
{
    static const char *const known[] = {"auto", "uring", "libaio", "threads"};
    for (size_t i = 0; name != NULL && i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(name, known[i]) == 0) {
            return 0;
        }
    }
    return name == NULL
               ? 0
               : core_err_set(-EINVAL, "--backend takes auto, uring, libaio or threads, not \"%s\"",
                              name);
}

/* Refuses options that the mode cannot honour. */
static int check_mode(const struct bench_options *options)
{
    bool points = options->mode != BENCH_VERIFY && options->mode != BENCH_SWAP;
    const char *mode = bench_mode_name(options->mode);
    if (options->config != NULL && options->mode != BENCH_SWEEP && options->mode != BENCH_POINT) {
        return core_err_set(-EINVAL, "--emit-config needs a sweep or points to recommend from");
    }
    if (points) {
        return 0;
    }
    if (options->csv != NULL || options->plot != NULL || options->baseline != NULL) {
        return core_err_set(-EINVAL,
                            "--mode %s measures no points for --csv, --plot or --baseline; "
                            "sweep, point and soak do",
                            mode);
    }
    if (options->sweep.block_count > 1 || options->sweep.depth_count > 1) {
        return core_err_set(-EINVAL, "--mode %s takes one --block_size and one --queue_depth",
                            mode);
    }
    const struct bench_how *how = &options->sweep.how;
    if (options->sweep.thread_count > 1 || options->sweep.threads[0] > 1 || !how->buffers ||
        !how->files || how->sqpoll || how->iopoll || how->pages != CORE_PAGES_AUTO ||
        how->node != BENCH_NODE_AUTO) {
        core_log(
            CORE_LOG_WARN,
            "--mode %s uses one I/O thread and configures it itself: --threads, --fixed_buffers, "
            "--registered_files, --pages, --numa, --sqpoll and --iopoll have no effect",
            mode);
    }
    return 0;
}

static int resolve(const struct raw *raw, const struct cli_parsed *parsed,
                   struct bench_options *out)
{
    static const enum core_pages pages[] = {CORE_PAGES_AUTO, CORE_PAGES_2M, CORE_PAGES_THP,
                                            CORE_PAGES_4K, CORE_PAGES_1G};
    out->mode = (enum bench_mode)raw->mode;
    out->backend = raw->backend;
    out->io_bytes = raw->io_bytes;
    out->tensor_bytes = raw->tensor_bytes >> 20 << 20;
    out->rated_bytes = raw->tbw * 1e12;
    out->common = parsed->common;
    struct bench_how *how = &out->sweep.how;
    how->buffers = raw->fixed == 0;
    how->files = raw->files == 0;
    how->pages = pages[raw->pages];
    how->sqpoll = raw->sqpoll;
    how->iopoll = raw->iopoll;
    how->checksums = raw->checksum == 2 || (raw->checksum == 0 && out->mode == BENCH_SWAP);
    int rc = take_dirs(raw, parsed, out);
    if (rc != 0 || (rc = check_backend(raw->backend)) != 0 || (rc = take_lists(raw, out)) != 0 ||
        (rc = take_tolerance(raw->tolerance, &out->tolerance)) != 0 ||
        (rc = take_node(raw->numa, how)) != 0) {
        return rc;
    }
    if (raw->params != NULL && (rc = bench_params_parse(raw->params, &out->params)) != 0) {
        return rc;
    }
    if (out->tensor_bytes == 0) {
        return core_err_set(-EINVAL, "--tensor_size must be at least 1 MiB");
    }
    take_times(raw, out);
    return check_mode(out);
}

int bench_options_parse(int argc, char **argv, struct bench_options *out)
{
    struct raw raw = {.ops = "read,write,rw",
                      .tensor_bytes = 64 << 20,
                      .ramp = -1,
                      .tolerance = "10%",
                      .numa = "auto"};
    struct bench_options made = {.dir_count = 0};
    const struct cli_option options[] = {
        {"nvme_dir", CLI_TEXTS, &raw.dirs, "DIR", "a directory on the drive; several may be named",
         0, 0, NULL, NULL},
        {"mode", CLI_CHOICE, &raw.mode, "MODE", "sweep (default), point, verify, swap, soak", 0, 0,
         "sweep|point|verify|swap|soak", NULL},
        {"op", CLI_TEXT, &raw.ops, "LIST", "read,write,rw (default: all three)", 0, 0, NULL, NULL},
        {"block_size", CLI_TEXT, &raw.blocks, "LIST",
         "bytes of an I/O (default: 128K to 8M; point: 1M)", 0, 0, NULL, NULL},
        {"queue_depth", CLI_TEXT, &raw.depths, "LIST",
         "I/Os in flight (default: 1 to 256; point: 32)", 0, 0, NULL, NULL},
        {"threads", CLI_TEXT, &raw.threads, "LIST",
         "I/O threads, each with its own ring (default: 1,2; point: 1)", 0, 0, NULL, NULL},
        {"io_size", CLI_SIZE, &raw.io_bytes, "SIZE",
         "size of the scratch file (default: what 6 s can write, 8 GiB at most)", 0, 0, NULL, NULL},
        {"runtime", CLI_REAL, &raw.runtime, "S",
         "seconds: sweep 44 in all; point 3, --full 5 per setting; soak 60", 0.01, 1e6, NULL, NULL},
        {"ramp_time", CLI_REAL, &raw.ramp, "S", "warmup before measuring (0.2)", 0, 1e4, NULL,
         NULL},
        {"loops", CLI_INTEGER, &raw.loops, "N",
         "visits to each setting (3); passes of verify (2), swap (5)", 1, 60, NULL, NULL},
        {"full", CLI_FLAG, &raw.full, NULL, "the whole grid instead of the adaptive sweep", 0, 0,
         NULL, NULL},
        {"backend", CLI_TEXT, &raw.backend, "NAME", "uring, libaio, threads (default: probed)", 0,
         0, NULL, NULL},
        {"fixed_buffers", CLI_CHOICE, &raw.fixed, "on|off", "registered buffers (on)", 0, 0,
         "on|off", NULL},
        {"registered_files", CLI_CHOICE, &raw.files, "on|off", "registered files (on)", 0, 0,
         "on|off", NULL},
        {"pages", CLI_CHOICE, &raw.pages, "KIND",
         "auto (default: the largest available), 2m, thp, 4k, 1g", 0, 0, "auto|2m|thp|4k|1g", NULL},
        {"sqpoll", CLI_FLAG, &raw.sqpoll, NULL, "a kernel thread submits", 0, 0, NULL, NULL},
        {"iopoll", CLI_FLAG, &raw.iopoll, NULL, "completions are polled", 0, 0, NULL, NULL},
        {"numa", CLI_TEXT, &raw.numa, "NODE", "auto (the drive's node), off, or a node's number", 0,
         0, NULL, NULL},
        {"checksum", CLI_CHOICE, &raw.checksum, "KIND",
         "none or xxh3, written and verified (auto: xxh3 for swap)", 0, 0, "auto|none|xxh3", NULL},
        {"tensor_size", CLI_SIZE, &raw.tensor_bytes, "SIZE",
         "swap: bytes of a tensor's states (64M)", 0, 0, NULL, NULL},
        {"params", CLI_TEXT, &raw.params, "N", "model size, for step time and wear (7B, 350M)", 0,
         0, NULL, NULL},
        {"tbw", CLI_REAL, &raw.tbw, "TB", "the drive's rated life in terabytes written", 0, 1e9,
         NULL, NULL},
        {"json", CLI_TEXT, &made.json, "FILE", "all results as JSON (-: stdout)", 0, 0, NULL, NULL},
        {"csv", CLI_TEXT, &made.csv, "FILE", "one line per setting and operation", 0, 0, NULL,
         NULL},
        {"plot", CLI_TEXT, &made.plot, "FILE", "a picture (SVG)", 0, 0, NULL, NULL},
        {"emit-config", CLI_TEXT, &made.config, "FILE", "the aio block for ds_config.json", 0, 0,
         NULL, NULL},
        {"baseline", CLI_TEXT, &made.baseline, "FILE",
         "a --json file to compare with; slower: exit 3", 0, 0, NULL, NULL},
        {"tolerance", CLI_TEXT, &raw.tolerance, "P", "how much slower is too much (10%)", 0, 0,
         NULL, NULL},
    };
    struct cli_parsed parsed;
    int code = cli_parse(&bench_command, options, sizeof options / sizeof options[0], argc, argv,
                         &parsed);
    if (code >= 0) {
        return code;
    }
    if (resolve(&raw, &parsed, &made) != 0) {
        return cli_fail(&bench_command, CLI_WRONG, NULL);
    }
    *out = made;
    return -1;
}
