/* test_publish.c: if publishing a model is interrupted, the folder keeps the owner's files and has
 * the old model, the new model or none. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "offload/model/claim.h"
#include "offload/model/publish.h"
#include "offload/model/save.h"
#include "offload/model/save_folder.h"
#include "tests/harness/child.h"
#include "tests/harness/test.h"
#include "tests/harness/wrap.h"
#include "tests/model/fixture.h"

/* ---- the n-th request fails, or the process is killed there ---- */

static int countdown; /* 1: the next request; 0: none */
static bool kills;
static int failure = EIO;
static int hits;

static bool due(void)
{
    if (countdown <= 0 || --countdown > 0) {
        return false;
    }
    if (kills) {
        test_child_end(9);
    }
    hits++;
    errno = failure;
    return true;
}

WRAP(int, rename, -1, (const char *from, const char *to), (from, to))
WRAP(int, renameat, -1, (int a, const char *from, int b, const char *to), (a, from, b, to))
WRAP(int, unlinkat, -1, (int folder, const char *name, int flags), (folder, name, flags))
WRAP(int, rmdir, -1, (const char *path), (path))
WRAP(int, fsync, -1, (int fd), (fd))
WRAP(void *, opendir, NULL, (const char *path), (path))
WRAP(ssize_t, write, -1, (int fd, const void *from, size_t bytes), (fd, from, bytes))
WRAP_OPEN(open)
WRAP_OPEN(open64)
WRAP_OPENAT(openat)
WRAP_OPENAT(openat64)

/* A write to a shard is lost or changed by one bit, and reports success. */
static enum { HONEST, LOSES, FLIPS } drive;
static int lies_at; /* the faulty write, counted from 1 */
ssize_t __real_pwrite64(int fd, const void *from, size_t bytes, off64_t at);
ssize_t __wrap_pwrite64(int fd, const void *from, size_t bytes, off64_t at);
ssize_t __wrap_pwrite64(int fd, const void *from, size_t bytes, off64_t at)
{
    if (drive == HONEST || lies_at <= 0 || --lies_at > 0) {
        return __real_pwrite64(fd, from, bytes, at);
    }
    hits++;
    if (drive == FLIPS) {
        char *changed = malloc(bytes);
        check_true(changed != NULL);
        memcpy(changed, from, bytes);
        changed[bytes / 2] ^= 0x10;
        const ssize_t put = __real_pwrite64(fd, changed, bytes, at);
        free(changed);
        return put;
    }
    return (ssize_t)bytes;
}

/* ---- a folder with an old model, checkpoints and files of its owner ---- */

static char out[600];
static char partial[700];

static const char *in(const char *name)
{
    static char path[4][1400];
    static unsigned turn;
    char *text = path[turn++ % 4];
    snprintf(text, sizeof path[0], "%s/%s", out, name);
    return text;
}

static void put(const char *name, const char *text)
{
    FILE *file = fopen(in(name), "w");
    check_true(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static bool holds(const char *name, const char *text)
{
    char found[64] = "";
    FILE *file = fopen(in(name), "r");
    if (file == NULL) {
        return false;
    }
    const size_t got = fread(found, 1, sizeof found - 1, file);
    fclose(file);
    return got == strlen(text) && memcmp(found, text, got) == 0;
}

static bool has(const char *name)
{
    struct stat info;
    return lstat(in(name), &info) == 0;
}

static void remove_all(void)
{
    char command[1400];
    snprintf(command, sizeof command, "rm -rf '%s' '%s'", out, partial);
    check_int(system(command), ==, 0);
}

/* Makes a folder with an old model of two shards, checkpoints and files of its owner. */
static void make_old(void)
{
    test_directory_in_memory();
    snprintf(out, sizeof out, "%s/out", test_directory());
    snprintf(partial, sizeof partial, "%s.partial", out);
    remove_all();
    check_int(mkdir(out, 0755), ==, 0);
    put("config.json", "old");
    put("model-00001-of-00002.safetensors", "old 1");
    put("model-00002-of-00002.safetensors", "old 2");
    put("model.safetensors.index.json", "old index");
    put("thesis.tex", "of years");
    put("model-best.safetensors", "mine");
    check_int(mkdir(in("checkpoint-3"), 0755), ==, 0);
    put("checkpoint-3/manifest.json", "three");
}

static void check_owners(void)
{
    check_true(holds("thesis.tex", "of years"));
    check_true(holds("model-best.safetensors", "mine"));
    check_true(holds("checkpoint-3/manifest.json", "three"));
}

static bool is_old(void)
{
    return holds("config.json", "old") && holds("model-00001-of-00002.safetensors", "old 1") &&
           holds("model-00002-of-00002.safetensors", "old 2") &&
           holds("model.safetensors.index.json", "old index") && !has("tokenizer.json");
}

static bool adapters; /* the result is adapters, the old folder a model */

static bool is_new(void)
{
    if (adapters) {
        return holds("adapter_config.json", "new") &&
               holds("adapter_model.safetensors", "new weights") &&
               holds("tokenizer.json", "new words") && !has("config.json") &&
               !has("model-00001-of-00002.safetensors") &&
               !has("model-00002-of-00002.safetensors") && !has("model.safetensors.index.json");
    }
    return holds("config.json", "new") && holds("model.safetensors", "new weights") &&
           holds("tokenizer.json", "new words") && !has("model-00001-of-00002.safetensors") &&
           !has("model-00002-of-00002.safetensors") && !has("model.safetensors.index.json");
}

/* The steps before publishing must succeed. */
static int write_and_publish(int at, bool kill)
{
    struct model_claim own = {.fd = -1};
    int rc = model_folder_begin(out, true, NULL, &own);
    const struct model_folder folder = {own.path, own.fd};
    const char *config = adapters ? "adapter_config.json" : "config.json";
    const char *weights = adapters ? "adapter_model.safetensors" : "model.safetensors";
    rc = rc != 0 ? rc : model_folder_write(&folder, config, "new", 3);
    rc = rc != 0 ? rc : model_folder_write(&folder, weights, "new weights", 11);
    rc = rc != 0 ? rc : model_folder_write(&folder, "tokenizer.json", "new words", 9);
    check_int(rc, ==, 0);
    kills = kill;
    hits = 0;
    countdown = at;
    rc = model_folder_publish(own.path, own.fd, out, true);
    countdown = 0;
    model_claim_close(&own);
    return rc;
}

/* Begins and ends a run, which first gives a complete result its name. */
static void go_on(void)
{
    struct model_claim claim;
    check_int(model_claim_take(out, &claim), ==, 0);
    model_claim_drop(&claim);
    check_int(access(partial, F_OK), !=, 0);
    check_true(!has(MODEL_CLAIM_MARK) && !has(MODEL_PUBLISH_LIST));
}

/* Only the old model's files are removed. */
static void replaced(void)
{
    make_old();
    check_int(model_folder_is_empty(out), ==, 0);
    check_int(model_folder_is_empty("/nonexistent"), ==, -ENOENT);
    check_int(write_and_publish(0, false), ==, 0);
    check_true(is_new());
    check_owners();
    check_int(access(partial, F_OK), !=, 0);
    check_true(!has(MODEL_CLAIM_MARK) && !has(MODEL_PUBLISH_LIST));
    /* First no folder, then an empty one. */
    for (int i = 0; i < 2; i++) {
        remove_all();
        check_int(i == 1 ? mkdir(out, 0755) : 0, ==, 0);
        check_int(write_and_publish(0, false), ==, 0);
        check_true(is_new() && !has(MODEL_CLAIM_MARK) && !has(MODEL_PUBLISH_LIST));
    }
}

/* If a folder has a file's name, that is reported before anything changes. */
static void in_the_way(void)
{
    make_old();
    check_int(mkdir(in("tokenizer.json"), 0755), ==, 0);
    check_int(write_and_publish(0, false), ==, -EISDIR);
    check_contains(core_err_message(), "out/tokenizer.json is a folder");
    check_int(model_publish_check(partial, out), ==, -EISDIR);
    check_int(rmdir(in("tokenizer.json")), ==, 0);
    check_int(model_publish_check(partial, out), ==, 0);
    check_true(is_old());
    check_owners();
}

/* Kills the process at each request. */
static void kill_at_each_request(void)
{
    int old = 0;
    int none = 0;
    int whole = 0;
    int n = 1;
    for (;; n++) {
        int status = 0;
        make_old();
        fflush(stdout);
        const pid_t child = fork();
        check_true(child >= 0);
        if (child == 0) {
            test_child_end(write_and_publish(n, true) == 0 ? 0 : 1);
        }
        check_int(waitpid(child, &status, 0), ==, child);
        check_owners();
        const bool was_old = is_old();
        const bool neither = !has("config.json") && !has("adapter_config.json");
        check_true(was_old || is_new() || neither);
        old += was_old;
        none += neither;
        whole += is_new();
        go_on();
        check_owners();
        check_true(is_new() || (was_old && is_old()));
        if (WEXITSTATUS(status) == 0) {
            break;
        }
        check_int(WEXITSTATUS(status), ==, 9);
    }
    test_note("%d requests: killed at %d the old model was there, at %d none, at %d the new one",
              n - 1, old, none, whole - 1);
    check_int(old, >, 3);
    check_int(none, >, 5);
    check_int(whole, >, 2);
}

static void killed(void)
{
    kill_at_each_request();
}

/* Adapters replace a model, whose config.json is removed. */
static void adapters_killed(void)
{
    adapters = true;
    make_old();
    check_int(write_and_publish(0, false), ==, 0);
    check_true(is_new());
    check_owners();
    kill_at_each_request();
    adapters = false;
}

/* Each request in turn fails; the next run publishes the new model, or the old one is unchanged. */
static void refused(void)
{
    static const int codes[] = {EIO, EMFILE, EXDEV, EINVAL};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        int n = 1;
        int failed = 0;
        for (;; n++) {
            failure = codes[i];
            make_old();
            const int rc = write_and_publish(n, false);
            check_owners();
            check_true(is_old() || is_new() || !has("config.json"));
            check_true(rc != 0 || is_new());
            check_true(rc == 0 || core_err_message()[0] != '\0');
            failed += rc != 0;
            const bool was_old = is_old();
            if (hits == 0) {
                check_int(rc, ==, 0);
                break;
            }
            if (access(partial, F_OK) == 0 && rc == 0) { /* a mark or the folder is left */
                check_true(is_new());
            }
            go_on();
            check_owners();
            check_true(is_new() || (was_old && is_old()));
        }
        check_int(failed, >, 10);
        test_note("%d requests, %d of them ended it with %s", n - 1, failed, strerror(codes[i]));
    }
}

/* A truncated list counts as missing, because files may be incomplete. */
static void torn_list(void)
{
    make_old();
    check_int(mkdir(partial, 0755), ==, 0);
    const int fd = open(partial, O_RDONLY | O_DIRECTORY);
    put("../out.partial/" MODEL_CLAIM_MARK, "");
    put("../out.partial/config.json", "half");
    put("../out.partial/" MODEL_PUBLISH_LIST, "tide-publish 2 0");
    check_true(model_publish_is_kept(fd));
    check_int(model_publish_resume(partial, fd, out), ==, 0);
    check_true(is_old());
    check_int(model_publish_keep(partial, fd, out), ==, 0);
    check_int(model_publish_resume(partial, fd, out), ==, 1);
    check_true(holds("config.json", "half"));
    check_int(access(partial, F_OK), !=, 0);
    close(fd);
}

/* Makes a complete result before its move; returns its open folder. */
static int make_result(void)
{
    make_old();
    check_int(mkdir(partial, 0755), ==, 0);
    put("../out.partial/" MODEL_CLAIM_MARK, "");
    put("../out.partial/config.json", "new");
    put("../out.partial/model.safetensors", "new weights");
    put("../out.partial/tokenizer.json", "new words");
    return open(partial, O_RDONLY | O_DIRECTORY);
}

/* A folder restored after a run was stopped is not changed; a bad list is refused. */
static void restored(void)
{
    static const char bad[] = "tide-publish 2 1\0new 1 1 1.000000001 ../thesis.tex\0";
    static const char older[] = "config.json\0";
    struct model_claim claim;
    const int fd = make_result();
    check_int(model_publish_keep(partial, fd, out), ==, 0);
    usleep(50000); /* clocks of file systems are coarse */
    check_int(unlink(in("config.json")), ==, 0);
    put("config.json", "old");
    check_int(model_claim_take(out, &claim), ==, -EEXIST);
    check_contains(core_err_message(), "was created or changed after a run was stopped");
    check_true(is_old());
    check_owners();
    check_int(unlink(in("config.json")), ==, 0);
    go_on();
    check_true(is_new());
    check_owners();
    close(fd);
    check_int(mkdir(partial, 0755), ==, 0);
    put("../out.partial/" MODEL_CLAIM_MARK, "");
    FILE *list = fopen(in("../out.partial/" MODEL_PUBLISH_LIST), "w");
    check_true(list != NULL && fwrite(bad, 1, sizeof bad, list) == sizeof bad && fclose(list) == 0);
    check_int(model_claim_take(out, &claim), ==, -EINVAL);
    check_contains(core_err_message(), "not the name of a file");
    list = fopen(in("../out.partial/" MODEL_PUBLISH_LIST), "w");
    check_true(list != NULL && fwrite(older, 1, sizeof older, list) == sizeof older &&
               fclose(list) == 0);
    check_int(model_claim_take(out, &claim), ==, -EINVAL);
    check_contains(core_err_message(), "was not written by this version of tide");
    check_owners();
}

static void in_out(const char *command)
{
    char text[2200];
    snprintf(text, sizeof text, "cd '%s/..' && %s", out, command);
    check_int(system(text), ==, 0);
}

/* A result that was copied before its move is kept. */
static void copied_rest(void)
{
    struct model_claim claim;
    const int fd = make_result();
    check_int(model_publish_keep(partial, fd, out), ==, 0);
    close(fd);
    in_out("cp -a out.partial copy && rm -r out.partial && mv copy out.partial");
    check_int(model_claim_take(out, &claim), ==, -ENOENT);
    check_contains(core_err_message(), "was copied or changed since");
    check_true(is_old());
    check_true(has("../out.partial/" MODEL_PUBLISH_LIST));
    check_true(has("../out.partial/config.json"));
    check_owners();
    in_out("rm -r out.partial");
}

/* A link in place of weights is removed; its target stays. */
static void linked_weights(void)
{
    const int fd = make_result();
    in_out("echo blob >blob; ln -s ../blob out/model-00009-of-00009.safetensors");
    check_int(model_publish_keep(partial, fd, out), ==, 0);
    close(fd);
    go_on();
    check_true(is_new());
    in_out("test ! -L out/model-00009-of-00009.safetensors && grep -q blob blob && rm blob");
}

/* Copies the folder to `backup`, then stops at the n-th request of publishing. Returns whether
 * there is such a request. */
static bool stop_at(int n)
{
    int status = 0;
    make_old();
    in_out("rm -rf backup; cp -a out backup");
    fflush(stdout);
    const pid_t child = fork();
    check_true(child >= 0);
    if (child == 0) {
        test_child_end(write_and_publish(n, true) == 0 ? 0 : 1);
    }
    check_int(waitpid(child, &status, 0), ==, child);
    check_true(WIFEXITED(status));
    check_true(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 9);
    return WEXITSTATUS(status) != 0;
}

/* Files put into the folder after a run was stopped are not replaced or removed. */
static void restored_anywhere(void)
{
    static const char *const ways[] = {
        "rm -r out; mv backup out",                       /* the whole folder */
        "rm -r out/*; cp -a backup/. out/",               /* the files, with their times */
        "cp -a backup/model.safetensors.index.json out/", /* one of several files */
        "cp -a backup/model-00001-of-00002.safetensors out/",
    };
    int refused = 0;
    int rest = 0;
    bool stopped = true;
    for (int n = 1; stopped; n++) {
        for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
            struct model_claim claim;
            stopped = stop_at(n);
            if (access(partial, F_OK) != 0 || !has("../out.partial/" MODEL_PUBLISH_LIST)) {
                continue;
            }
            in_out(ways[i]);
            in_out("rm -rf before; cp -a out before");
            const int rc = model_claim_take(out, &claim);
            check_true(rc == 0 || rc == -EEXIST || rc == -ENOENT);
            in_out("diff -r out before");
            refused += rc != 0;
            rest += rc == 0;
            if (rc == 0) {
                model_claim_drop(&claim);
            }
        }
    }
    test_note("%d refused; %d times only marks were left", refused, rest);
    check_int(refused, >, 20);
    check_int(rest, >, 2);
}

/* A part of a result is not taken for a model. */
static void folder_is_gone(void)
{
    int whole = 0;
    int parts = 0;
    bool stopped = true;
    for (int n = 1; stopped; n++) {
        struct model_claim claim;
        stopped = stop_at(n);
        if (!has("../out.partial/" MODEL_PUBLISH_LIST)) {
            continue;
        }
        const bool all = has("../out.partial/config.json") &&
                         has("../out.partial/model.safetensors") &&
                         has("../out.partial/tokenizer.json");
        const bool none = !has("../out.partial/config.json");
        in_out("rm -r out");
        const int rc = model_claim_take(out, &claim);
        check_int(rc, ==, all || none ? 0 : -ENOENT);
        check_true(rc == 0 || !has("config.json"));
        check_true(is_new() || !has("config.json")); /* a truncated list counts as missing */
        if (rc == 0) {
            model_claim_drop(&claim);
        } else {
            check_contains(core_err_message(), "missing now");
            parts++;
        }
        whole += is_new();
    }
    check_int(whole, >, 0);
    check_int(parts, >, 0);
}

/* ---- the weights ---- */

static int save_all(struct fixture *fixture, const struct model_save_options *options)
{
    struct model_save *save = NULL;
    int rc = model_save_open(fixture->model, options, &save);
    for (unsigned b = 0; rc == 0 && b < fixture->model->block_count; b++) {
        const uint64_t elements = fixture->model->blocks[b].elements;
        float *values = calloc(elements, sizeof *values);
        check_true(values != NULL);
        for (uint64_t i = 0; i < elements; i++) {
            values[i] = (float)(i % 1000) + (float)b;
        }
        for (uint64_t at = 0; rc == 0 && at < elements; at += 3001) {
            const uint64_t left = elements - at;
            rc = model_save_put(save, b, at, left < 3001 ? left : 3001, MODEL_F32, values + at);
        }
        free(values);
    }
    rc = rc != 0 ? rc : model_save_finish(save);
    const struct core_err kept = core_err_keep(rc);
    model_save_close(save);
    return core_err_first(&kept, 0);
}

/* A faulty write of weights is detected before the model gets its name. */
static void drives_lie(void)
{
    static const char *const folders[] = {"llama3", "gpt2"};
    for (int i = 0; i < 4; i++) {
        struct fixture fixture;
        fixture_open(&fixture, folders[i % 2]);
        make_old();
        const struct model_save_options options = {.folder = out,
                                                   .type = i < 2 ? MODEL_BF16 : MODEL_F32,
                                                   .shard_bytes = i < 2 ? 0 : 20000,
                                                   .replace = true};
        int found = 0;
        for (int n = 1;; n += found < TEST_COUNT(25, 6) ? 1 : 61) {
            drive = found % 2 == 0 ? FLIPS : LOSES;
            lies_at = n;
            hits = 0;
            const int rc = save_all(&fixture, &options);
            drive = HONEST;
            if (hits == 0) {
                check_int(rc, ==, 0);
                check_true(!is_old());
                break;
            }
            if (rc == 0) { /* not detected */
                test_fail(__FILE__, __LINE__, "%s: write %d lied and nobody saw it", folders[i % 2],
                          n);
            }
            check_int(rc, ==, -EBADMSG);
            check_contains(core_err_message(), "out.partial/model");
            check_contains(core_err_message(), "differs from what was written");
            check_true(is_old());
            check_int(access(partial, F_OK), !=, 0);
            found++;
        }
        test_note("%s: %d writes lied", folders[i % 2], found);
        check_int(found, >, 4);
        check_owners();
        fixture_close(&fixture);
    }
}

static void put_zeros(const struct fixture *fixture, struct model_save *save)
{
    for (unsigned b = 0; b < fixture->model->block_count; b++) {
        const uint64_t elements = fixture->model->blocks[b].elements;
        float *values = calloc(elements, sizeof *values);
        check_true(values != NULL);
        check_int(model_save_put(save, b, 0, elements, MODEL_F32, values), ==, 0);
        free(values);
    }
}

/* A model that cannot be given its name is kept, and the next run moves it. */
static void kept(void)
{
    struct fixture fixture;
    fixture_open(&fixture, "llama3");
    make_old();
    const struct model_save_options options = {.folder = out, .type = MODEL_F32, .replace = true};
    check_int(save_all(&fixture, &options), ==, 0);
    int stayed = 0;
    for (int n = 1; n < 200; n++) {
        make_old();
        kills = false;
        failure = EIO;
        hits = 0;
        struct model_save *save = NULL;
        check_int(model_save_open(fixture.model, &options, &save), ==, 0);
        put_zeros(&fixture, save);
        countdown = n;
        const int rc = model_save_finish(save);
        countdown = 0;
        const int folder = open(partial, O_RDONLY | O_DIRECTORY);
        const bool whole = rc != 0 && model_publish_is_kept(folder);
        if (folder >= 0) {
            close(folder);
        }
        if (whole) {
            check_contains(core_err_message(), "the model is complete in ");
            model_save_close(save);
            go_on();
            check_true(has("model.safetensors") && !is_old());
            stayed++;
        } else {
            model_save_close(save);
        }
        check_owners();
        if (hits == 0) {
            check_int(rc, ==, 0);
            break;
        }
    }
    check_int(stayed, >, 5);
    fixture_close(&fixture);
}

/* A file with the folder's name is not changed; after it is gone, the model gets its name. */
static void a_file_has_the_name(void)
{
    struct fixture fixture;
    struct model_save *save = NULL;
    char *text = NULL;
    size_t bytes = 0;
    fixture_open(&fixture, "llama3");
    make_old();
    remove_all();
    const struct model_save_options options = {.folder = out, .type = MODEL_F32, .replace = true};
    check_int(model_save_open(fixture.model, &options, &save), ==, 0);
    put_zeros(&fixture, save);
    test_file("out", "mine", 4);
    check_int(model_save_finish(save), ==, -ENOTDIR);
    check_contains(core_err_message(), "the model is complete in ");
    model_save_close(save);
    check_int(core_file_read(out, 100, &text, &bytes), ==, 0);
    check_string(text, "mine");
    free(text);
    check_int(unlink(out), ==, 0);
    go_on();
    check_true(has("model.safetensors"));
    fixture_close(&fixture);
}

/* If a folder that may not be replaced gets a file, the model stays in FOLDER.partial with the mark
 * of a run. */
static void a_file_came_meanwhile(void)
{
    struct fixture fixture;
    struct stat info;
    char path[800];
    fixture_open(&fixture, "llama3");
    make_old();
    for (int i = 0; i < 2; i++) {
        struct model_save *save = NULL;
        struct model_claim claim = {.fd = -1};
        remove_all();
        const struct model_save_options options = {
            .folder = out, .type = MODEL_F32, .claim = i == 1 ? &claim : NULL};
        check_int(i == 1 ? model_claim_take(out, &claim) : 0, ==, 0);
        check_int(model_save_open(fixture.model, &options, &save), ==, 0);
        put_zeros(&fixture, save);
        check_int(mkdir(out, 0700), ==, 0);
        test_file("out/notes.txt", "mine", 4);
        check_int(model_save_finish(save), ==, -EEXIST);
        check_contains(core_err_message(), "the model is complete in ");
        check_contains(core_err_message(), "move it to another name");
        model_save_close(save);
        model_claim_drop(&claim);
        snprintf(path, sizeof path, "%s/model.safetensors", partial);
        check_int(stat(path, &info), ==, 0);
        snprintf(path, sizeof path, "%s/notes.txt", out);
        check_int(stat(path, &info), ==, 0);
        check_int(model_claim_take(out, &claim), ==, 0);
        snprintf(path, sizeof path, "%s/model.safetensors", partial);
        check_int(stat(path, &info), !=, 0);
        model_claim_drop(&claim);
        check_int(access(partial, F_OK), !=, 0);
    }
    fixture_close(&fixture);
}

TEST_MAIN({"replaced", replaced}, {"a_file_came_meanwhile", a_file_came_meanwhile},
          {"in_the_way", in_the_way}, {"a_file_has_the_name", a_file_has_the_name},
          {"killed", killed}, {"adapters_killed", adapters_killed}, {"refused", refused},
          {"torn_list", torn_list}, {"copied_rest", copied_rest},
          {"linked_weights", linked_weights}, {"restored", restored},
          {"restored_anywhere", restored_anywhere}, {"folder_is_gone", folder_is_gone},
          {"drives_lie", drives_lie}, {"kept", kept})
