/* test_small_disk.c: small file systems, and folders and stores that others use. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tests/finetune/rig.h"
#include "tests/harness/mount.h"
#include "tests/harness/test.h"

#define TRAIN_SMALL TRAIN "--lr 1e-2 --threads 2 --rates %T/rates.json "

static void begin(void)
{
    rig_program = "tools/tide";
    rig_rows();
    if (!rig_has("rates.json")) {
        mkdir(rig_path("measured"), 0700);
        expect(0, "plan --model %M --store %T/measured --save-rates %T/rates.json -q");
    }
}

static void put(const char *path, const char *text)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    check_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

/* Mounts an empty folder with limited space, or skips the case. */
static void small_disk(const char *name, unsigned kib)
{
    char size[64];
    snprintf(size, sizeof size, "size=%uk,mode=0700", kib);
    if (test_mount_memory(name, size) == NULL) {
        test_skip("no small file system can be mounted here: %s", strerror(errno));
    }
}

static void end_disk(const char *name)
{
    test_mount_end(rig_path(name));
    rig_end();
}

/* Without space for the store, the run ends before its first step and leaves nothing of the
 * store. */
static void store_at_step_0(void)
{
    begin();
    small_disk("tiny", 48);
    put(rig_path("tiny/mine"), "a letter");
    expect(3, TRAIN_SMALL "--out %T/x --steps 2 --store %T/tiny/store --io threads");
    check_contains(rig_err, "has 0 MiB free, and tide leaves 1024 MiB free for others");
    expect(1, TRAIN_SMALL "--out %T/x --steps 2 --store %T/tiny/store:1G --log %T/x.jsonl "
                          "--io threads --place weights=store,states=store");
    check_contains(rig_err, "tiny/store");
    check_contains(rig_err, "bytes");
    check_true(!rig_has("tiny/store"));
    check_string(rig_read("tiny/mine"), "a letter");
    check_true(!rig_has("x/model.safetensors"));
    end_disk("tiny");
}

/* The run continues without space for checkpoints, but does not begin without space for the
 * model. */
static void output_at_the_first_save(void)
{
    static const struct {
        unsigned kib;
        int code;
        const char *message;
    } disks[] = {{256, 1, "the last checkpoint was not written: checkpoint-4: no space for "},
                 {32, 1, "disk/out.partial/model.safetensors: it needs 0."}};
    begin();
    for (int i = 0; i < 2; i++) {
        small_disk("disk", disks[i].kib);
        mkdir(rig_path("disk/out"), 0700);
        put(rig_path("disk/mine"), "a letter");
        put(rig_path("disk/out/mine"), "another");
        expect(disks[i].code, TRAIN_SMALL "--out %T/disk/out --overwrite --steps 4 --save-every 2");
        check_contains(rig_err, disks[i].message);
        check_string(rig_read("disk/mine"), "a letter");
        check_true(rig_has("disk/out/model.safetensors") == (i == 0));
        check_string(rig_read("disk/out/mine"), "another");
        check_true(!rig_has("disk/out/checkpoint-2") && !rig_has("disk/out/checkpoint-2.partial"));
        check_true(!rig_has("disk/out.partial"));
        end_disk("disk");
    }
}

/* A timeline that cannot be written changes the exit code to 1; the model is written. */
static void timeline_on_a_full_disk(void)
{
    begin();
    expect(1, TRAIN_SMALL "--out %T/traced --steps 4 --trace /dev/full -q");
    check_contains(rig_err, "the timeline /dev/full cannot be written: No space left");
    check_true(rig_has("traced/model.safetensors"));
    small_disk("disk", 4);
    expect(1, TRAIN_SMALL "--out %T/traced --overwrite --steps 4 --trace %T/disk/t.json -q");
    check_contains(rig_err, "disk/t.json cannot be written: No space left");
    check_true(!rig_has("disk/t.json"));
    expect(0, TRAIN_SMALL "--out %T/traced --overwrite --steps 4 --trace %T/t.json -q");
    check_contains(rig_read("t.json"), "]");
    end_disk("disk");
}

/* A full disk of a log, a table or an event file is reported once, and the model is written. */
static void log_on_a_full_disk(void)
{
    static const char *const flags[] = {"--log %T/disk/log", "--csv %T/disk/log.csv",
                                        "--tensorboard %T/disk/log.board"};
    static const char run[] = TRAIN_SMALL "--out %T/logged --overwrite --steps 2 -q ";
    char line[512] = "";
    begin();
    small_disk("disk", 4);
    const int fd = open(rig_path("disk/filler"), O_WRONLY | O_CREAT, 0600);
    while (fd >= 0 && write(fd, line, sizeof line) > 0) {
    }
    close(fd);
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        snprintf(line, sizeof line, "%s%s", run, flags[i]);
        expect(1, line);
        const char *message = strstr(rig_err, "No space left on device; the run continues");
        check_true(message != NULL && strstr(message + 1, "No space left") == NULL);
        check_contains(rig_err, "/disk/log");
        check_true(rig_has("logged/model.safetensors"));
    }
    end_disk("disk");
}

/* In a container's image, folders cannot be renamed or exchanged, but a run can resume there. */
static void overlay(void)
{
    char lower[700];
    begin();
    mkdir(rig_path("image"), 0700);
    expect(0, TRAIN_SMALL "--out %T/image/out --steps 4 --save-every 1 -q");
    test_file("image/out/thesis.tex", "of years", 8);
    snprintf(lower, sizeof lower, "%s", rig_path("image"));
    if (test_mount_overlay("layers", lower) == NULL) {
        test_skip("no overlay can be mounted here: %s", strerror(errno));
    }
    expect(0, TRAIN_SMALL "--out %T/layers/out --steps 8 --save-every 1 --keep 2 --resume -q");
    check_true(rig_has("layers/out/checkpoint-8") && rig_has("layers/out/checkpoint-7"));
    check_true(!rig_has("layers/out/checkpoint-4") && !rig_has("layers/out/checkpoint-3"));
    check_true(!rig_has("layers/out.partial"));
    check_string(rig_read("layers/out/thesis.tex"), "of years");
    expect(0, TRAIN_SMALL "--out %T/plain --steps 8 -q");
    rig_same_model("plain", "layers/out");
    end_disk("layers");
}

static unsigned kib_of(const char *name)
{
    struct statvfs disk;
    check_int(statvfs(rig_path(name), &disk), ==, 0);
    return (unsigned)((disk.f_blocks - disk.f_bfree) * disk.f_frsize / 1024);
}

/* Spare files are removed if the model needs their space. */
static void spare_gives_way(void)
{
    static const char run[] = TRAIN_SMALL "--out %T/disk/out --steps 4 --save-every 1 --keep 1 "
                                          "--io threads";
    begin();
    small_disk("disk", 8192);
    expect(0, TRAIN_SMALL "--out %T/disk/out --steps 1");
    const unsigned model = kib_of("disk");
    expect(0, TRAIN_SMALL "--out %T/disk/out --overwrite --steps 1 --save-every 1");
    const unsigned checkpoint = kib_of("disk") - model;
    end_disk("disk");
    small_disk("disk", 2 * checkpoint + model / 2);
    expect(0, run);
    check_true(rig_has("disk/out/model.safetensors") && rig_has("disk/out/checkpoint-4"));
    check_true(!rig_has("disk/out/checkpoint-3.spare"));
    end_disk("disk");
}

/* Without space for the final model, the message names a checkpoint from which the run can
 * continue. */
static void model_does_not_fit_any_more(void)
{
    static const char run[] = TRAIN_SMALL "--out %T/disk/out --steps 4 --save-every 2 --keep 1 "
                                          "--io threads";
    char size[40];
    begin();
    small_disk("disk", 8192);
    expect(0, TRAIN_SMALL "--out %T/disk/out --steps 1");
    const unsigned model = kib_of("disk");
    expect(0, TRAIN_SMALL "--out %T/disk/out --overwrite --steps 1 --save-every 1");
    const unsigned checkpoint = kib_of("disk") - model;
    end_disk("disk");
    small_disk("disk", checkpoint + model / 2);
    expect(1, run);
    check_contains(rig_err, "disk/out are complete: without this problem, the same command with ");
    check_true(rig_has("disk/out/checkpoint-2") && !rig_has("disk/out/model.safetensors"));
    snprintf(size, sizeof size, "size=%uk", 3 * checkpoint);
    check_int(mount("tide", rig_path("disk"), "tmpfs", MS_REMOUNT, size), ==, 0);
    expect(0, TRAIN_SMALL "--out %T/disk/out --steps 4 --save-every 2 --io threads --resume");
    check_contains(rig_err, "checkpoint-2, after step 2 of 4");
    check_true(rig_has("disk/out/model.safetensors"));
    end_disk("disk");
}

/* An output folder that cannot be renamed is refused before the run begins. */
static void output_is_a_mount_point(void)
{
    begin();
    small_disk("mounted", 4096);
    expect(2, TRAIN_SMALL "--out %T/mounted --steps 2");
    check_contains(rig_err, "is a mount point");
    end_disk("mounted");
}

static void wait_for(const char *name)
{
    for (int i = 0; i < 6000 && !rig_has(name); i++) {
        usleep(5000);
    }
    check_true(rig_has(name));
}

/* A second run with the same output folder ends and does not disturb the first run. */
static void two_runs_on_one_output(void)
{
    begin();
    const int first = rig_start(NULL,
                                TRAIN_SMALL "--out %T/both --steps 1000000 --save-every 2 -q");
    wait_for("both/checkpoint-2");
    const int second = rig_start(NULL,
                                 TRAIN_SMALL "--out %T/both --steps 4 --save-every 1 --resume");
    const int code = rig_wait(second);
    check_contains(rig_err, "both.partial; name another folder, or wait until that run ends");
    check_true(code == 1 || code == 2);
    check_true(!rig_has("both/model.safetensors"));
    kill(first, SIGTERM);
    rig_expect(__LINE__, rig_wait(first), 130);
    check_contains(rig_err, "has the complete state");
    rig_end();
}

/* A missing store folder is not created on the disk below an unmounted drive, unless requested. */
static void missing_store(void)
{
    static const char run[] = TRAIN_SMALL "--out %T/z --overwrite --steps 2 --io threads --place "
                                          "states=store ";
    char line[700];
    begin();
    snprintf(line, sizeof line, "%s--store %%T/unmounted", run);
    expect(2, line);
    check_contains(rig_err, "/unmounted does not exist, and no file system is mounted at ");
    check_contains(rig_err, "(mkdir -p ");
    check_contains(rig_err, "--make-store");
    check_true(!rig_has("unmounted") && !rig_has("z"));
    snprintf(line, sizeof line, "%s--store %%T/unmounted/deep", run);
    expect(2, line);
    check_contains(rig_err, "/unmounted/deep does not exist, and neither does ");
    check_true(strstr(rig_err, "--make-store") == NULL); /* --make-store creates no parents */
    snprintf(line, sizeof line, "%s--store /tide-unmounted", run);
    expect(2, line);
    check_contains(rig_err, "/tide-unmounted does not exist, and it would be on the file system of "
                            "/; mount the drive");
    snprintf(line, sizeof line, "%s--store %%T/unmounted//", run); /* the same parent */
    expect(2, line);
    snprintf(line, sizeof line, "no file system is mounted at %s;", test_directory());
    check_contains(rig_err, line);
    snprintf(line, sizeof line, "%s--store %%T/unmounted/deep --make-store", run);
    expect(2, line);
    check_true(!rig_has("unmounted"));
    expect(2, TRAIN_SMALL "--out %T/z --overwrite --steps 2 --place states=host "
                          "--store %T/unmounted/deep --make-store"); /* not needed */
    check_contains(rig_err, "/unmounted/deep does not exist, and neither does ");
    static const char nvme[] = "{\"train_batch_size\": 8, \"zero_optimization\": {\"stage\": 3, "
                               "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": "
                               "\"/nonexistent-drive\"}}}";
    test_file("nvme.json", nvme, strlen(nvme));
    expect(2, "finetune --model %M --data %T/d.jsonl --out %T/z --config %T/nvme.json");
    check_contains(rig_err, "/nonexistent-drive");
    check_contains(rig_err, "does not exist");
    snprintf(line, sizeof line, "%s--store %%T/unmounted --make-store", run);
    expect(0, line);
    check_true(!rig_has("unmounted")); /* the run removed what it had created */
    small_disk("mounted", 49152);
    snprintf(line, sizeof line, "%s--store %%T/mounted/store:32M", run);
    expect(0, line);
    check_contains(rig_err, "mounted/store, on tide-test (tmpfs, mounted at ");
    end_disk("mounted");
}

/* The message about a full disk names the file of --save-rates, which is removed if it is new. */
static void rates_on_a_full_disk(void)
{
    static const char text[8192];
    begin();
    small_disk("full", 8);
    const int fd = open(rig_path("full/filler"), O_WRONLY | O_CREAT, 0600);
    check_int(write(fd, text, sizeof text), ==, sizeof text);
    close(fd);
    expect(1, "plan --model %M --rates %T/rates.json --save-rates %T/full/r.json");
    check_contains(rig_err, "full/r.json: JSON cannot be written: No space left");
    check_true(!rig_has("full/r.json"));
    end_disk("full");
}

/* An unsafe folder of a store is refused before anything is measured, whether or not a plan needs
 * it. */
static void unsafe_store(void)
{
    static const char *const commands[] = {
        TRAIN "--out %T/u --place states=host --measure --store %T/",
        "plan --model %M --place states=host --measure --store %T/"};
    char line[700];
    begin();
    mkdir(rig_path("everybody"), 0700);
    check_int(chmod(rig_path("everybody"), 0777), ==, 0);
    check_int(symlink("measured", rig_path("linked")), ==, 0);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        snprintf(line, sizeof line, "%severybody", commands[i]);
        expect(2, line);
        check_contains(rig_err, "everybody can write to ");
        check_contains(rig_err, "; chmod o-w '");
        check_true(strstr(rig_err, "measur") == NULL);
        snprintf(line, sizeof line, "%slinked", commands[i]);
        expect(2, line);
        check_contains(rig_err, "linked is a symbolic link");
        snprintf(line, sizeof line, "%slinked/below", commands[i]);
        expect(2, line);
        check_contains(rig_err, "linked is a symbolic link");
    }
    check_true(!rig_has("u"));
    rig_end();
}

/* Files of another program in the place of a store do not change. */
static void somebody_elses_store(void)
{
    static const char run[] = TRAIN_SMALL "--out %T/y --steps 2 --place states=store --io threads "
                                          "--store %T/theirs";
    begin();
    mkdir(rig_path("theirs"), 0700);
    mkdir(rig_path("theirs/tide-rank-0"), 0700);
    put(rig_path("theirs/tide-rank-0/tide-extents"), "no extents at all");
    expect(1, run);
    check_contains(rig_err, "is not touched: ");
    check_string(rig_read("theirs/tide-rank-0/tide-extents"), "no extents at all");
    check_int(chmod(rig_path("theirs/tide-rank-0"), 0755), ==, 0);
    expect(2, run);
    check_contains(rig_err, "open to others");
    check_string(rig_read("theirs/tide-rank-0/tide-extents"), "no extents at all");
    check_true(!rig_has("y/model.safetensors"));
    rig_end();
}

TEST_MAIN({"store_at_step_0", store_at_step_0},
          {"output_at_the_first_save", output_at_the_first_save},
          {"timeline_on_a_full_disk", timeline_on_a_full_disk},
          {"log_on_a_full_disk", log_on_a_full_disk}, {"overlay", overlay},
          {"spare_gives_way", spare_gives_way},
          {"model_does_not_fit_any_more", model_does_not_fit_any_more},
          {"output_is_a_mount_point", output_is_a_mount_point},
          {"two_runs_on_one_output", two_runs_on_one_output}, {"missing_store", missing_store},
          {"unsafe_store", unsafe_store}, {"rates_on_a_full_disk", rates_on_a_full_disk},
          {"somebody_elses_store", somebody_elses_store})
