/* Compares `mpirun tide finetune` with ranks that are threads. Needs Open MPI; some cases need
 * MPICH. */
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/finetune/rig.h"
#include "tests/harness/mpi.h"
#include "tests/harness/test.h"

#define RANKS TRAIN "--lr 1e-2 --threads 4 --rates %T/rates.json -q "

static struct {
    const char *program, *flags;
    const char *before; /* words before the program, or NULL */
} launcher;

static void write_rank(void)
{
    char script[1400];
    const char *root = getenv("TIDE_BUILD_ROOT");
    root = root != NULL ? root : "build";
    const int length = snprintf(
        script, sizeof script,
        "#!/bin/sh\nrank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}\necho $$ >%s\nmv %s %s\n"
        "[ -e %s ] && mkdir -p %s && cd %s\n"
        "[ -e %s ] && exec unshare -u sh -c 'hostname node'$(cut -d ' ' -f $((rank + 1)) %s)'; "
        "exec \"$@\"' sh %s/tools/tide \"$@\"\n"
        "exec %s/tools/tide \"$@\"\n",
        rig_path("pid.new.$rank"), rig_path("pid.new.$rank"), rig_path("pid.$rank"),
        rig_path("apart"), rig_path("cwd.$rank"), rig_path("cwd.$rank"), rig_path("hosts"),
        rig_path("hosts"), root, root);
    check_int(chmod(test_file("rank", script, (size_t)length), 0700), ==, 0);
}

/* Processes write their IDs to pid.RANK. A file `apart` gives processes separate folders; a file
 * `hosts` has the number of each rank's host. */
static void begin(void)
{
    test_mpi_begin();
    launcher.program = "/usr/bin/mpirun.openmpi";
    launcher.flags = "--oversubscribe --bind-to none";
    rig_train_begin();
    write_rank();
}

static void begin_mpich(void)
{
    test_mpich_begin();
    launcher.program = "/usr/bin/mpirun.mpich";
    launcher.flags = "";
    rig_train_begin();
    write_rank();
}

static int start(unsigned ranks, const char *arguments)
{
    char words[1024];
    rig_program = launcher.program;
    snprintf(words, sizeof words, "%s -n %u %s %%T/rank %s", launcher.flags, ranks,
             launcher.before != NULL ? launcher.before : "", arguments);
    const int child = rig_start(NULL, words);
    rig_program = "tools/tide";
    return child;
}

static void world(unsigned ranks, int code, const char *arguments)
{
    rig_expect(__LINE__, rig_wait(start(ranks, arguments)), code);
}

static const char *shell(const char *command)
{
    static char text[512];
    snprintf(text, sizeof text, "cd %s && %s", test_directory(), command);
    return text;
}

static const char *pid_name(unsigned rank)
{
    static char name[32];
    snprintf(name, sizeof name, "pid.%u", rank);
    return name;
}

static int pid_of(unsigned rank)
{
    return atoi(rig_read(pid_name(rank)));
}

/* Processes and threads end with the same bytes. */
static void same_bits(void)
{
    static const struct {
        unsigned ranks;
        const char *flags;
    } rows[] = {
        {2, "--zero 0 --clip 0.5"},
        {2, "--zero 1 --precision fp16 --moments 8bit"},
        {3, "--zero 2 --fp32-grads"},
        {2, "--zero 1 --reduce int4"},
        {4, "--zero 3 --gather-within 2"},
        {4, "--zero 3 --store %T/store --place weights=store,states=store"},
    };
    begin();
    for (size_t i = TEST_SLOW ? 5 : 0; i < sizeof rows / sizeof rows[0]; i++) {
        char words[512];
        snprintf(words, sizeof words, "%s%s --steps 4 --out %%T/threads --overwrite --ranks %u",
                 RANKS, rows[i].flags, rows[i].ranks);
        expect(0, words);
        snprintf(words, sizeof words, "%s%s --steps 4 --out %%T/processes --overwrite", RANKS,
                 rows[i].flags);
        world(rows[i].ranks, 0, words);
        rig_same_model("threads", "processes");
    }
    rig_end();
}

/* A saved run continues to the same bytes, or with another number of ranks. */
static void resumed(void)
{
    begin();
    world(2, 0, RANKS "--zero 3 --steps 5 --out %T/whole");
    world(2, 0, RANKS "--zero 3 --steps 2 --save-every 2 --out %T/parts");
    world(2, 0, RANKS "--zero 3 --steps 5 --save-every 2 --out %T/parts --resume");
    rig_same_model("whole", "parts");
    world(3, 0, RANKS "--zero 2 --steps 6 --save-every 6 --out %T/parts --resume");
    expect(0, RANKS "--zero 1 --steps 7 --ranks 2 --out %T/parts --resume");
    check_contains(rig_out, "parts: 7 steps");
#define TALKS                                                                                      \
    TRAIN "--lr 1e-2 --threads 4 --rates %T/rates.json -v --gather int8 --ranks 2 "                \
          "--reduce int4 "
    expect(0, TALKS "--zero 3 --steps 8 --save-every 8 --out %T/parts --resume");
    check_contains(rig_err, "gather was exact before this run was resumed and is int8 now");
    check_contains(rig_err, "ranks gather weights in 8 bits");
    check_contains(rig_err, "reduce was exact before this run was resumed and is int4 now");
    check_contains(rig_err, "ranks reduce gradients in 4 bits");
    expect(0, TALKS "--zero 1 --steps 9 --out %T/parts --resume");
    check_contains(rig_err, "gather was int8 before this run was resumed and is exact now");
    check_contains(rig_err, "(--gather int8) has no effect: it needs several ranks, ZeRO stage 3");
    expect(0, TALKS "--zero 0 --steps 10 --out %T/parts --resume");
    check_contains(rig_err, "(--reduce int4) has no effect: it needs several ranks and ZeRO stage");
#undef TALKS
    rig_end();
}

/* Without a file of rates, processes measure their collectives together. */
static void measured(void)
{
#define MEASURED TRAIN "--lr 1e-2 --threads 4 -v --zero 3 --gather-within 2 --steps 3 --overwrite "
    begin();
    world(4, 0, MEASURED "--out %T/processes");
    check_contains(rig_err, "ranks receive ");
    check_contains(rig_err, " GB/s from each other, measured between processes with ");
    if (!TEST_SLOW) { /* The arrays of the measurement count against the memory budget. */
        world(2, 0, MEASURED "--out %T/small --host-memory 240M --device-memory 60M");
        const char *size = strstr(rig_err, "measured between processes with ");
        check_true(size != NULL);
        check_double(strtod(size + strlen("measured between processes with "), NULL), <=,
                     300 / 2.0 / 16 * 1.1);
    }
    expect(0, MEASURED "--out %T/threads --ranks 4");
    check_true(strstr(rig_err, "ranks receive ") == NULL);
    rig_same_model("threads", "processes");
#undef MEASURED
    rig_end();
}

/* A launcher that leaves a process fewer processors than threads causes a warning. */
static void bound(void)
{
    cpu_set_t cpus;
    char words[40];
    unsigned cpu = 0;
    begin();
    check_int(sched_getaffinity(0, sizeof cpus, &cpus), ==, 0);
    while (!CPU_ISSET(cpu, &cpus)) {
        cpu++;
    }
    snprintf(words, sizeof words, "taskset -c %u", cpu);
    launcher.before = words;
    world(2, 0, TRAIN "--lr 1e-2 --threads 4 --rates %T/rates.json --steps 1 --out %T/bound");
    launcher.before = NULL;
    check_contains(rig_err, "rank 0 on ");
    check_contains(rig_err, " has 2 threads, but its launcher binds it to 1 processor: mpirun "
                            "--bind-to none (or a wider binding) lets it use them");
    check_true(strstr(rig_err, "rank 1 on ") == NULL);
    rig_end();
}

static double summed_reads(const char *log)
{
    const char *text = strstr(rig_read(log), "\"median_seconds\"");
    const char *drives = text != NULL ? strstr(text, "\"drives\":[{\"directory\":") : NULL;
    const char *reads = drives != NULL ? strstr(drives, "\"read_bytes\":") : NULL;
    check_true(reads != NULL);
    return atof(reads + strlen("\"read_bytes\":"));
}

/* The log counts the bytes that the drives of all processes read. */
static void drives_counted(void)
{
#define STORED RANKS "--zero 3 --steps 4 --store %T/store --place weights=store,states=store "
    begin();
    world(4, 0, STORED "--out %T/processes --overwrite --log %T/processes.jsonl");
    expect(0, STORED "--ranks 4 --out %T/threads --overwrite --log %T/threads.jsonl");
    const double all = summed_reads("threads.jsonl");
    check_double(all, >, 0);
    check_double(summed_reads("processes.jsonl"), >, all / 2);
    check_double(summed_reads("processes.jsonl"), <, all * 2);
#undef STORED
    rig_end();
}

/* Groups of ranks do not change the model; the size of groups must divide the number of ranks. */
static void grouped(void)
{
#define GROUPS RANKS "--zero 3 --gather int8 --steps 4 "
    begin();
    expect(0, GROUPS "--ranks 4 --out %T/all");
    expect(0, GROUPS "--ranks 4 --gather-within 2 --out %T/groups --log %T/log");
    rig_same_model("all", "groups");
    check_contains(rig_read("log"), "\"gather_between_bytes\":0");
    expect(2, GROUPS "--ranks 4 --gather-within 3 --out %T/no");
    check_contains(rig_err, "4 ranks cannot be divided into groups of 3");
    check_contains(rig_err, "takes a divisor of the number of ranks");
    expect(0, TRAIN "--lr 1e-2 --threads 4 --rates %T/rates.json -v --zero 3 --ranks 2 --steps 4 "
                    "--gather-within 2 --out %T/groups --overwrite");
    check_contains(
        rig_err,
        "groups of 2 ranks (--gather-within) has no effect: it needs more ranks than that");
#undef GROUPS
    rig_end();
}

static double reduced_between(const char *log)
{
    const char *at = strstr(rig_read(log), "\"reduce_between_bytes\":");
    check_true(at != NULL);
    return atof(at + strlen("\"reduce_between_bytes\":"));
}

/* The ranks of a host add their gradients first, so that fewer bytes pass between hosts. */
static void fast(void)
{
#define FAST TRAIN "--lr 1e-2 --threads 4 --rates %T/rates.json -v --zero 2 "
    begin();
    if (TEST_SLOW || system("unshare -u hostname tide-test 2>/dev/null") != 0) {
        test_skip("no right to give processes host names of their own, or a slow build");
    }
    expect(0, FAST "--reduce fast --ranks 2 --steps 1 --out %T/one");
    check_contains(rig_err, "(--reduce fast) has no effect: on the CPU it needs several nodes");
    test_file("hosts", "0 0 1 2", 7);
    world(4, 2, FAST "--reduce fast --steps 1 --out %T/none");
    check_contains(rig_err, "needs the same number of ranks on each host, one after the other; of "
                            "ranks 2 to 3, rank 2 is on node1 and rank 3 on node2");
    test_file("hosts", "0 0 1 1", 7);
    world(4, 0, FAST "--steps 2 --out %T/exact --log %T/exact.jsonl");
    world(4, 0, FAST "--reduce fast --steps 2 --save-every 2 --out %T/fast --log %T/fast.jsonl");
    check_contains(rig_err, "reduce fast: the ranks of each node add their gradients first, and "
                            "round the sums, so results differ from exact ones");
    check_double(reduced_between("fast.jsonl"), >, 0);
    check_double(reduced_between("fast.jsonl"), <, 0.6 * reduced_between("exact.jsonl"));
    check_contains(rig_read("fast/checkpoint-2/manifest.json"), "\"reduce\": \"fast\"");
    rig_remove("hosts");
    expect(0, FAST "--ranks 4 --steps 3 --out %T/fast --resume");
    check_contains(rig_err, "reduce was fast before this run was resumed and is exact now");
#undef FAST
    rig_end();
}

/* Without --threads, the processes of a host share its processors. */
static void threads_are_shared(void)
{
    cpu_set_t cpus;
    char threads[40];
    begin();
    world(2, 0, TRAIN "--lr 1e-2 --rates %T/rates.json -q --steps 1 --save-every 1 --out %T/own");
    check_int(sched_getaffinity(0, sizeof cpus, &cpus), ==, 0);
    const int each = CPU_COUNT(&cpus) / 2;
    snprintf(threads, sizeof threads, "\"threads\": \"%d\"", each > 0 ? each : 1);
    check_contains(rig_read("own/checkpoint-1/manifest.json"), threads);
    rig_end();
}

/* A model whose blocks are shared by ranks: the embedding and the head have 2 cuts of 64 Ki
 * elements, the layer 7. */
#define CASE                                                                                       \
    "finetune --model %T/case/model --data %T/case/rows.jsonl --batch 1 --accum 1 --lr 1e-2 "      \
    "--threads 3 --steps 2 "

static void make_case(void)
{
    if (!rig_has("case")) {
        rig_program = "tools/tide_make_case";
        expect(0, "%T/case --hidden 256 --layers 1 --heads 4 --kv-heads 2 --inner 320 --vocab 512 "
                  "--seq-len 8 --rows 6 -q");
        rig_program = "tools/tide";
    }
}

/* Processes write the checkpoint that threads write. */
static void saved(void)
{
    static const struct {
        unsigned ranks;
        const char *flags;
        const char *streams[6];
    } rows[] = {
        {3, "--zero 3 --freeze model.layers.0.*", {"weights", "master", "m", "v", "sums"}},
        {2,
         "--zero 2 --moments 8bit --checkpoint-local",
         {"weights", "master", "m", "v_scales", "sums"}},
        {2, "--zero 0", {"weights", "m", "sums"}},
        {2, "--zero 3 --gather int8 --reduce int4", {"weights", "master", "m", "v", "sums"}},
    };
    begin();
    make_case();
    for (size_t i = 0; i < (TEST_SLOW ? 1 : sizeof rows / sizeof rows[0]); i++) {
        char words[512];
        snprintf(words, sizeof words, "%s%s -q --save-every 2 --out %%T/by_threads --ranks %u",
                 CASE, rows[i].flags, rows[i].ranks);
        expect(0, words);
        snprintf(words, sizeof words, "%s%s -q --save-every 2 --out %%T/by_processes", CASE,
                 rows[i].flags);
        world(rows[i].ranks, 0, words);
        for (const char *const *name = rows[i].streams; *name != NULL; name++) {
            char path[64];
            snprintf(path, sizeof path, "checkpoint-2/%s.safetensors", *name);
            rig_same_file("by_threads", "by_processes", path);
        }
        expect(0, "inspect %T/by_processes/checkpoint-2");
        rig_remove("by_threads");
        rig_remove("by_processes");
    }
    rig_end();
}

/* Processes begin with the same adapters, and save them as threads do. */
static void adapters(void)
{
    begin();
    make_case();
#define LORA                                                                                       \
    "--lora 4 --lora-targets q_proj,v_proj,down_proj --modules-to-save model.norm --zero 3 "       \
    "--lora-dropout 0.2 --base int8 "
#define DORA "--lora 2 --lora-dora --base nf4 --zero 3 "
    expect(0, CASE LORA "-q --out %T/by_threads --ranks 3");
    world(3, 0, CASE LORA "-q --out %T/by_processes --save-every 1");
    rig_same_adapter("by_threads", "by_processes");
    world(2, 0, CASE LORA "-q --out %T/by_processes --save-every 1 --resume --steps 3");
    if (!TEST_SLOW) {
        expect(
            0, CASE
            "-q --adapter %T/by_threads --lora-dropout 0.3 --zero 1 --out %T/threads_on --ranks 2");
        world(2, 0,
              CASE "-q --adapter %T/by_threads --lora-dropout 0.3 --zero 1 --out %T/processes_on");
        rig_same_adapter("threads_on", "processes_on");
        expect(0, CASE DORA "-q --out %T/dora_threads --ranks 2");
        world(2, 0, CASE DORA "-q --out %T/dora_processes");
        rig_same_adapter("dora_threads", "dora_processes");
    }
    rig_end();
}

static void copy_margin(const char *log, char margin[64])
{
    static const char key[] = "\"reward_margin\":";
    const char *at = rig_read(log);
    for (int step = 0; step < 3; step++) {
        at = strstr(at, key);
        check_true(at != NULL);
        at += sizeof key - 1;
    }
    snprintf(margin, 64, "%.*s", (int)strcspn(at, ",}"), at);
}

/* With pairs of answers, processes give the adapters and rewards that threads give. */
static void pairs(void)
{
#define PAIRS                                                                                      \
    "finetune --model %T/pairs/model --data %T/pairs.jsonl --lora 4 --loss dpo --lr 1e-2 "         \
    "--batch 1 --accum 2 --shuffle --steps 3 --threads 2 --rates %T/rates.json -q --zero 3 "
    char margins[2][64];
    begin();
    rig_make_pairs();
    expect(0, PAIRS "--out %T/pairs_threads --log %T/pairs_threads.jsonl --ranks 2");
    world(2, 0, PAIRS "--out %T/pairs_processes --log %T/pairs_processes.jsonl --save-every 2");
    rig_same_adapter("pairs_threads", "pairs_processes");
    copy_margin("pairs_processes.jsonl", margins[0]);
    copy_margin("pairs_threads.jsonl", margins[1]);
    check_string(margins[0], margins[1]);
    world(2, 0, PAIRS "--out %T/pairs_processes --save-every 2 --resume --steps 4");
#undef PAIRS
    rig_end();
}

/* A process that sees another output folder than the first process ends the run; the earlier
 * checkpoint is kept. */
static void apart(void)
{
    if (TEST_SLOW) {
        test_skip("no more is proven in a build with a sanitizer");
    }
    begin();
    make_case();
    test_file("apart", "", 0);
    world(1, 0, CASE "--zero 2 -q --save-every 1 --steps 1 --out here");
    world(2, 2, CASE "--zero 2 -q --save-every 1 --resume --out here");
    check_contains(rig_err, "rank 1 on ");
    check_contains(rig_err, "here/checkpoint-1 cannot be opened");
    check_int(system(shell("mkdir -p cwd.1/here && cp -r cwd.0/here/checkpoint-1 cwd.1/here")), ==,
              0);
    world(2, 1, CASE "--zero 2 -q --save-every 1 --resume --out here");
    check_contains(rig_err,
                   "here/checkpoint-2.partial, which the first process has made, cannot be opened");
    check_int(system(shell("cp -r cwd.1/here/checkpoint-1 cwd.1/here/checkpoint-2.partial")), ==,
              0);
    world(2, 1, CASE "--zero 2 -q --save-every 1 --resume --out here");
    check_contains(rig_err, "do not match their checksum");
    check_int(unlink(rig_path("apart")), ==, 0);
    check_true(rig_has("cwd.0/here/checkpoint-1"));
    check_true(!rig_has("cwd.0/here/checkpoint-2") && !rig_has("cwd.0/here/checkpoint-2.partial"));
    rig_end();
}

/* A process with other weights at the model's path is named. */
static void other_weights(void)
{
    begin();
    make_case();
    test_file("apart", "", 0);
    check_int(system(shell("mkdir -p cwd.0 cwd.1 && cp -r case/model cwd.0/own && "
                           "cp -r case/model cwd.1/own")),
              ==, 0);
    const char *words = "finetune --model own --data %T/case/rows.jsonl --batch 1 --threads 2 "
                        "--steps 1 --zero 1 --overwrite -q --out %T/weights";
    world(2, 0, words);
    rig_program = "tools/tide_make_case";
    expect(0, "%T/other --hidden 256 --layers 1 --heads 4 --kv-heads 2 --inner 320 --vocab 512 "
              "--seq-len 8 --rows 6 --seed 1 -q");
    rig_program = "tools/tide";
    check_int(system(shell("rm -r cwd.1/own && mv other/model cwd.1/own")), ==, 0);
    world(2, 2, words);
    check_contains(rig_err, "rank 1 finds other weights in own than rank 0");
    check_int(unlink(rig_path("apart")), ==, 0);
    rig_end();
}

/* The first process reports wrong input for all, unless torchrun's processes are not connected. */
static void refused(void)
{
    if (TEST_SLOW) {
        test_skip("no more is proven in a build with a sanitizer");
    }
    begin();
    world(2, 2, RANKS "--steps 1 --out %T/none --ranks 3");
    check_contains(rig_err, "--ranks 3 contradicts mpirun (Open MPI), which started 2 processes");
    check_true(strstr(strstr(rig_err, "contradicts") + 1, "contradicts") == NULL);
    world(2, 2, RANKS "--steps 1 --out %T/none --dev cuda");
    check_contains(rig_err, "cuda");
    expect_with(2, "LOCAL_RANK=0", RANKS "--steps 0 --out %T/none");
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "2", 1);
    expect_with(2, "LOCAL_RANK=0", RANKS "--steps 1 --out %T/none");
    check_contains(rig_err, "use mpirun -n 2 instead");
    /* With cards, the process lacks a rendezvous or NCCL. */
    expect_with(2, "LOCAL_RANK=0", RANKS "--steps 1 --out %T/none --dev cuda");
    check_contains(rig_err, "torchrun");
    /* Another process reports the fault, too: its machine may be the only one with the fault. */
    setenv("RANK", "1", 1);
    expect_with(2, "LOCAL_RANK=1", RANKS "--steps 1 --out %T/none");
    check_contains(rig_err, "rank 1: torchrun started 2 processes, but does not connect them");
    expect_with(2, "LOCAL_RANK=1", RANKS "--steps 1 --out %T/none --dev cuda --rendezvous nowhere");
    check_contains(rig_err, "rank 1: "); /* no valid rendezvous, or no NCCL */
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    expect(2, RANKS "--steps 1 --out %T/none --rendezvous localhost:29501");
    check_contains(rig_err, "--rendezvous is for processes that torchrun started");
    world(2, 2, RANKS "--steps 1 --out %T/none --rendezvous localhost:29501");
    check_contains(rig_err, "mpirun or srun started these and connects them");
    check_true(!rig_has("none"));
    rig_end();
}

/* Starts two processes with `first` and `second` after the same flags. */
static void two_ways(int code, const char *first, const char *second)
{
    char words[1400];
    snprintf(words, sizeof words, "%s%s : -n 1 %%T/rank %s%s", RANKS, first, RANKS, second);
    world(1, code, words);
}

/* Processes must have the same arguments, except -q and -v; the message names the first
 * difference. */
static void arguments(void)
{
    begin();
    two_ways(2, "--steps 1 --seed 1 --out %T/none", "--steps 1 --seed 2 --out %T/none");
    check_contains(rig_err, "--seed is 2 for rank 1 on ");
    check_contains(rig_err, ", but 1 for rank 0: give all processes the same arguments");
    two_ways(2, "--out %T/none --steps=1", "--out %T/none --steps=2");
    check_contains(rig_err, "--steps is 2 for rank 1 on ");
    two_ways(2, "--out %T/none --zero 1 --steps 1", "--out %T/none --steps 1");
    check_contains(rig_err, " was started with --steps where rank 0 has --zero");
    two_ways(2, "--out %T/none --shuffle", "--out %T/none");
    check_contains(rig_err, "--shuffle was given to rank 0 but not to rank 1 on ");
    two_ways(2, "--out %T/none", "--out %T/none --shuffle");
    check_contains(rig_err, "--shuffle was given to rank 1 on ");
    check_true(!rig_has("none"));
    two_ways(0, "--steps 1 --out %T/both -vv", "-q --steps 1 --out %T/both");
    rig_remove("both");
    rig_end();
}

/* A signal to a process saves the run and ends the other processes. */
static void signalled(void)
{
    begin();
    const int run = start(3, RANKS "--zero 2 --steps 1000000 --out %T/asked --log %T/asked.jsonl");
    rig_wait_for_text("asked.jsonl");
    check_contains(rig_read("asked.jsonl"), ",\"ranks\":{\"slowest\":");
    check_int(kill(pid_of(2), SIGUSR1), ==, 0);
    rig_expect(__LINE__, rig_wait(run), 130);
    check_contains(rig_err, "has the complete state: --resume continues from there");
    rig_remove("asked");
    rig_end();
}

/* With MPICH, runs train, save, resume and stop, too; if a process is killed, the others end. */
static void other_library(void)
{
    begin_mpich();
    expect(0, RANKS "--zero 3 --steps 4 --out %T/threads --overwrite --ranks 2");
    world(2, 0, RANKS "--zero 3 --steps 2 --save-every 2 --out %T/mpich");
    world(2, 0, RANKS "--zero 3 --steps 4 --save-every 4 --out %T/mpich --resume");
    rig_same_model("threads", "mpich");
    if (TEST_SLOW) {
        rig_end();
        return;
    }
    int run = start(2, RANKS "--zero 2 --steps 1000000 --out %T/asked --log %T/mpich.jsonl");
    rig_wait_for_text("mpich.jsonl");
    check_int(kill(pid_of(1), SIGUSR1), ==, 0);
    rig_expect(__LINE__, rig_wait(run), 130);
    check_contains(rig_err, "has the complete state: --resume continues from there");
    rig_remove("asked");
    check_int(unlink(rig_path("mpich.jsonl")), ==, 0);
    run = start(2, RANKS "--zero 2 --steps 1000000 --out %T/asked --log %T/mpich.jsonl");
    rig_wait_for_text("mpich.jsonl");
    const int other = pid_of(0);
    check_int(kill(pid_of(1), SIGKILL), ==, 0);
    check_int(rig_wait(run), !=, 0);
    for (int i = 0; i < 600 && kill(other, 0) == 0; i++) {
        usleep(50000);
    }
    check_int(kill(other, 0), ==, -1);
    rig_end();
}

/* Starts the run again, and kills a random rank during the start or after a checkpoint. Returns
 * false if the run ended before. */
static bool strike(unsigned ranks, const char *words, int *newest, uint64_t *state)
{
    const unsigned victim = (unsigned)test_random(state, ranks);
    const bool early = test_random(state, 3) == 0;
    const useconds_t pause_us = (useconds_t)test_random(state, early ? 500000 : 60000);
    char sentence[64];
    bool inside;
    for (unsigned rank = 0; rank < ranks; rank++) {
        (void)unlink(rig_path(pid_name(rank)));
    }
    const int run = start(ranks, words);
    for (unsigned rank = 0; rank < ranks; rank++) {
        rig_wait_for_text(pid_name(rank));
    }
    const int pid = pid_of(victim);
    for (int i = 0; i < 10000 && !early && rig_newest("hurt", *newest, &inside) == *newest; i++) {
        usleep(3000);
    }
    usleep(pause_us);
    (void)kill(pid, SIGKILL);
    const int code = rig_wait(run);
    *newest = rig_newest("hurt", *newest, &inside);
    if (code == 0) {
        return false;
    }
    check_true(rig_err[0] != '\0');
    if (!early) {
        snprintf(sentence, sizeof sentence, "process rank %u with PID", victim);
        check_contains(rig_err, sentence);
        check_contains(rig_err, "exited on signal 9");
    }
    for (unsigned rank = 0; rank < ranks; rank++) {
        const int other = pid_of(rank);
        for (int i = 0; i < 600 && kill(other, 0) == 0; i++) {
            usleep(50000);
        }
        check_int(kill(other, 0), ==, -1);
    }
    return true;
}

static double last_loss(void)
{
    const char *arrow = strstr(rig_out, "-> ");
    check_true(arrow != NULL);
    return strtod(arrow + strlen("-> "), NULL);
}

/* Kills and continues a run of 2 ranks repeatedly, with `widens` alternately with 3 ranks. Returns
 * the number of kills. */
static unsigned storm_series(const char *flags, bool widens, unsigned kills, uint64_t *state)
{
    char words[512];
    char base[400];
    int newest = 0;
    unsigned struck = 0;
    snprintf(base, sizeof base, "%s%s --shuffle --seed 3 --steps %u", RANKS, flags, kills * 12);
    snprintf(words, sizeof words, "%s --accum 3 --out %%T/untouched", base);
    world(2, 0, words);
    const double loss = last_loss();
    for (bool more = true; more && struck < kills; struck += more) {
        const bool wide = widens && struck % 2 == 1;
        snprintf(words, sizeof words,
                 "%s --accum %d --out %%T/hurt --resume --save-every 1 --store %%T/store --place "
                 "states=store",
                 base, wide ? 2 : 3);
        more = strike(wide ? 3 : 2, words, &newest, state);
    }
    snprintf(words, sizeof words, "%s --accum 3 --out %%T/hurt --resume --store %%T/store -v",
             base);
    world(2, 0, words);
    if (newest > 0) {
        char resumed[64];
        snprintf(resumed, sizeof resumed, "checkpoint-%d", newest);
        check_contains(rig_err, resumed);
    }
    if (widens) {
        check_double(fabs(last_loss() - loss), <=, 2e-3);
    } else {
        rig_same_model("untouched", "hurt");
    }
    rig_remove("hurt");
    rig_remove("untouched");
    return struck;
}

/* After kills at random moments, the run continues to the same bytes, or with more ranks to a
 * similar loss. */
static void storm(void)
{
    const unsigned kills = test_full() ? 50 : TEST_COUNT(3, 2);
    uint64_t state = 20261123;
    begin();
    unsigned struck = storm_series("--zero 2", false, kills / 2, &state);
    struck += storm_series("--zero 3", true, kills - kills / 2, &state);
    test_note("seed 20261123, %u kills", struck);
    check_uint(struck, >=, 1);
    rig_end();
}

/* If a rank cannot create its store, the run ends, names the rank, and leaves no store. */
static void failing_rank(void)
{
    begin();
    test_file("store/tide-rank-1", "x", 1);
    world(2, 2, RANKS "--zero 1 --steps 2 --out %T/none --store %T/store --place states=store");
    check_contains(rig_err, "rank 1 on ");
    check_true(!rig_has("store/tide-rank-0"));
    check_int(unlink(rig_path("store/tide-rank-1")), ==, 0);
    rig_end();
}

TEST_MAIN({"same_bits", same_bits}, {"resumed", resumed},
          {"threads_are_shared", threads_are_shared}, {"measured", measured}, {"bound", bound},
          {"drives_counted", drives_counted}, {"grouped", grouped}, {"fast", fast},
          {"saved", saved}, {"adapters", adapters}, {"pairs", pairs}, {"apart", apart},
          {"other_weights", other_weights}, {"refused", refused}, {"arguments", arguments},
          {"signalled", signalled}, {"other_library", other_library}, {"storm", storm},
          {"failing_rank", failing_rank})
