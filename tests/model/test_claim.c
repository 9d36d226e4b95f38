/* test_claim.c: the claim on a folder that a run will write, and the mark of a run's files. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "offload/model/claim.h"
#include "offload/model/publish.h"
#include "offload/model/save.h"
#include "offload/model/save_folder.h"
#include "tests/harness/child.h"
#include "tests/harness/test.h"
#include "tests/model/fixture.h"

/* A folder has one claim at a time; only the claim's owner can write there. */
static void one_writer(void)
{
    char out[600];
    char other[600];
    char partial[700];
    snprintf(out, sizeof out, "%s/claimed/", test_directory());
    struct fixture fixture;
    fixture_open(&fixture, "llama3");
    struct model_claim first;
    struct model_claim second;
    struct model_save *save = NULL;
    struct model_save_options options = {.folder = out, .type = MODEL_F32};
    check_int(model_claim_take(out, &first), ==, 0);
    out[strlen(out) - 1] = '\0';
    snprintf(partial, sizeof partial, "%s.partial", out);
    check_true(model_claim_holds(&first, out) && !model_claim_holds(&first, partial));
    check_int(model_claim_take(out, &second), ==, -EBUSY);
    check_contains(core_err_message(), "another run");
    check_true(!model_claim_holds(&second, out));
    check_int(model_save_open(fixture.model, &options, &save), ==, -EBUSY);
    options.claim = &first;
    for (int i = 0; i < 2; i++) { /* closing a save removes the files and keeps the claim */
        check_int(model_save_open(fixture.model, &options, &save), ==, 0);
        model_save_close(save);
        check_true(model_claim_holds(&first, out));
    }
    model_folder_remove(partial);
    check_true(!model_claim_holds(&first, out));
    check_int(model_save_open(fixture.model, &options, &save), ==, 0); /* makes the folder */
    model_save_close(save);
    check_int(access(partial, F_OK), !=, 0);
    model_claim_drop(&first);
    /* the same folder, spelled another way */
    snprintf(other, sizeof other, "%s/./claimed", test_directory());
    check_int(model_claim_take(out, &first), ==, 0);
    check_true(model_claim_holds(&first, other));
    options.folder = other;
    check_int(model_save_open(fixture.model, &options, &save), ==, 0);
    model_save_close(save);
    check_true(model_claim_holds(&first, out));
    model_claim_undo(&first);
    check_int(access(partial, F_OK), !=, 0);
    check_true(!model_claim_holds(&first, out));
    model_claim_undo(&first);
    model_claim_drop(&first);
    check_int(mkdir(partial, 0777), ==, 0); /* left by a killed run */
    check_int(model_claim_take(out, &first), ==, 0);
    model_claim_drop(&first);
    check_int(access(partial, F_OK), !=, 0);
    model_claim_drop(&first);
    /* The next run can read the note of a killed run; a dropped claim leaves no note. */
    check_int(model_claim_take(out, &first), ==, 0);
    check_true(first.noted == NULL);
    check_int(model_claim_note(&first, "/nvme/one\n/nvme/two\n"), ==, 0);
    check_int(model_claim_note(&first, "/nvme/three\n"), ==, 0);
    model_claim_close(&first); /* as when the process is killed */
    check_int(model_claim_take(out, &second), ==, 0);
    check_string(second.noted, "/nvme/three\n");
    model_claim_drop(&second);
    check_int(model_claim_take(out, &first), ==, 0);
    check_true(first.noted == NULL);
    model_claim_drop(&first);
    test_file("claimed.partial", "", 0);
    check_int(model_claim_take(out, &first), ==, -ENOTDIR);
    check_int(unlink(partial), ==, 0);
    fixture_close(&fixture);
}

static bool has(const char *folder, const char *name)
{
    char path[1400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

/* FOLDER.partial is emptied if a run left it, else refused. */
static void somebodys(void)
{
    static const char *const owned[] = {"own.partial/diary", "own.partial/" MODEL_CLAIM_MARK "/x"};
    char out[600];
    char partial[700];
    snprintf(out, sizeof out, "%s/own", test_directory());
    snprintf(partial, sizeof partial, "%s.partial", out);
    struct fixture fixture;
    fixture_open(&fixture, "llama3");
    struct model_claim claim;
    struct model_save *save = NULL;
    struct model_save_options options = {.folder = out, .type = MODEL_F32};
    /* the second time the mark is a folder, which does not count */
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) {
        char path[1400];
        check_int(mkdir(partial, 0777), ==, 0);
        snprintf(path, sizeof path, "%s/" MODEL_CLAIM_MARK, partial);
        check_int(i == 1 ? mkdir(path, 0777) : 0, ==, 0);
        test_file(owned[i], "dear", 4);
        check_int(model_claim_take(out, &claim), ==, -EEXIST);
        check_contains(core_err_message(), partial);
        check_contains(core_err_message(), "move it away or name another folder");
        check_int(model_save_open(fixture.model, &options, &save), ==, -EEXIST);
        check_true(has(test_directory(), owned[i]));
        snprintf(path, sizeof path, "rm -r '%s'", partial);
        check_int(system(path), ==, 0);
    }
    /* Files of a killed run. */
    check_int(mkdir(partial, 0777), ==, 0);
    test_file("own.partial/" MODEL_CLAIM_MARK, "", 0);
    test_file("own.partial/half", "half", 4);
    check_int(model_save_open(fixture.model, &options, &save), ==, 0);
    check_true(!has(partial, "half") && has(partial, MODEL_CLAIM_MARK));
    model_save_close(save);
    check_int(access(partial, F_OK), !=, 0);
    /* Foreign files are kept when a run drops its claim. */
    check_int(model_claim_take(out, &claim), ==, 0);
    test_file("own.partial/diary", "dear", 4);
    model_claim_drop(&claim);
    check_true(has(partial, "diary") && !has(partial, MODEL_CLAIM_MARK));
    check_int(model_claim_take(out, &claim), ==, -EEXIST);
    model_folder_remove(partial);
    check_int(access(partial, F_OK), !=, 0);
    test_file("own", "", 0);
    options.replace = true;
    check_int(model_save_open(fixture.model, &options, &save), ==, -ENOTDIR);
    check_contains(core_err_message(), "is not a folder");
    fixture_close(&fixture);
}

static int claim_and_keep(void *argument)
{
    static struct model_claim claim;
    return model_claim_take(argument, &claim);
}

/* A run's claim ends with the run, even if a child of the run lives. */
static void a_child_does_not_hold_it(void)
{
    char out[600];
    struct test_orphan orphan;
    struct model_claim claim;
    snprintf(out, sizeof out, "%s/orphan", test_directory());
    test_orphan_begin(claim_and_keep, out, &orphan);
    check_int(model_claim_take(out, &claim), ==, -EBUSY);
    test_orphan_kill(&orphan);
    check_int(model_claim_take(out, &claim), ==, 0);
    test_orphan_end(&orphan);
    model_claim_drop(&claim);
}

TEST_MAIN({"a_child_does_not_hold_it", a_child_does_not_hold_it}, {"one_writer", one_writer},
          {"somebodys", somebodys})
