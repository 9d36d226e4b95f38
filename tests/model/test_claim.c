/* test_claim.c: the right to write a folder, and the mark by which a run's files are told from others'. */
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
#include "tests/harness/test.h"
#include "tests/model/fixture.h"

/* Of two who are to write one folder the second one is told; what is claimed is written by who claimed
 * it; what was published, or left behind empty, is in nobody's way. */
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
    check_contains(core_err_sentence(), "another run");
    check_true(!model_claim_holds(&second, out));
    check_int(model_save_open(fixture.model, &options, &save), ==, -EBUSY);
    options.claim = &first;
    for (int i = 0; i < 2; i++) { /* what is claimed stays so, and without a file in it */
        check_int(model_save_open(fixture.model, &options, &save), ==, 0);
        model_save_close(save);
        check_true(model_claim_holds(&first, out));
    }
    model_folder_remove(partial);
    check_true(!model_claim_holds(&first, out));
    check_int(model_save_open(fixture.model, &options, &save), ==, 0); /* made again, and its own */
    model_save_close(save);
    check_int(access(partial, F_OK), !=, 0);
    model_claim_drop(&first);
    /* However it is spelled. */
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
    check_int(mkdir(partial, 0777), ==, 0); /* of a run that was killed */
    check_int(model_claim_take(out, &first), ==, 0);
    model_claim_drop(&first);
    check_int(access(partial, F_OK), !=, 0);
    model_claim_drop(&first);
    /* What a killed run noted is the next one's to read; a claim that is dropped leaves no note. */
    check_int(model_claim_take(out, &first), ==, 0);
    check_true(first.noted == NULL);
    check_int(model_claim_note(&first, "/nvme/one\n/nvme/two\n"), ==, 0);
    check_int(model_claim_note(&first, "/nvme/three\n"), ==, 0);
    close(first.fd); /* as a kill does */
    free(first.path);
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

/* FOLDER.partial is emptied where a run left it, and is refused, and left as it is, where its files are
 * somebody's own. */
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
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) { /* a folder is no mark */
        char path[1400];
        check_int(mkdir(partial, 0777), ==, 0);
        snprintf(path, sizeof path, "%s/" MODEL_CLAIM_MARK, partial);
        check_int(i == 1 ? mkdir(path, 0777) : 0, ==, 0);
        test_file(owned[i], "dear", 4);
        check_int(model_claim_take(out, &claim), ==, -EEXIST);
        check_contains(core_err_sentence(), partial);
        check_contains(core_err_sentence(), "move it away or name another folder");
        check_int(model_save_open(fixture.model, &options, &save), ==, -EEXIST);
        check_true(has(test_directory(), owned[i]));
        snprintf(path, sizeof path, "rm -r '%s'", partial);
        check_int(system(path), ==, 0);
    }
    /* What a run left that was killed. */
    check_int(mkdir(partial, 0777), ==, 0);
    test_file("own.partial/" MODEL_CLAIM_MARK, "", 0);
    test_file("own.partial/half", "half", 4);
    check_int(model_save_open(fixture.model, &options, &save), ==, 0);
    check_true(!has(partial, "half") && has(partial, MODEL_CLAIM_MARK));
    model_save_close(save);
    check_int(access(partial, F_OK), !=, 0);
    /* What somebody puts beside a run's files is theirs when the run gives the folder back. */
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
    check_contains(core_err_sentence(), "is not a folder");
    fixture_close(&fixture);
}

TEST_MAIN({"one_writer", one_writer}, {"somebodys", somebodys})
