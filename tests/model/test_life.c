/* test_life.c: if an allocation fails, reading and writing model folders reports the error and
 * leaks nothing. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/team.h"
#include "offload/model/claim.h"
#include "offload/model/config_read.h"
#include "offload/model/peft.h"
#include "offload/model/save.h"
#include "offload/model/stored.h"
#include "tests/harness/fail_alloc.h"
#include "tests/harness/test.h"
#include "tests/model/fixture.h"

static char folder[600];

static const char *fixture_folder(const char *name)
{
    snprintf(folder, sizeof folder, "%s/model/%s", test_root(), name);
    return folder;
}

/* ---- reading ---- */

static int read_blocks(const struct model *model, const struct model_files *files)
{
    static uint16_t to[1 << 18];
    struct core_team *team = NULL;
    struct model_sums *sums = NULL;
    int rc = core_team_create(&(struct core_team_options){.count = 2}, &team);
    if (rc == 0) {
        rc = model_sums_create(model, &sums);
    }
    for (unsigned b = 0; rc == 0 && b < model->block_count; b++) {
        if (model->blocks[b].elements > sizeof to / sizeof to[0]) {
            rc = core_err_set(-EINVAL, "block %u has too many elements for this test", b);
        } else {
            rc = model_files_read_block(files, &model->blocks[b], MODEL_BF16, to, team, sums);
        }
    }
    model_sums_destroy(sums);
    core_team_destroy(team);
    return rc;
}

static int read_life(void)
{
    static const char *const frozen[] = {"*"};
    const struct model_options options = {.frozen = frozen, .frozen_count = 1};
    struct model_config config;
    struct model *model = NULL;
    struct model_files *files = NULL;
    int rc = model_config_load(folder, &config);
    if (rc == 0) {
        rc = model_create(&config, &options, &model);
    }
    if (rc == 0) {
        rc = model_files_open(folder, &files);
    }
    if (rc == 0) {
        rc = model_files_check(files, model);
    }
    if (rc == 0) {
        rc = read_blocks(model, files);
    }
    model_files_close(files);
    model_destroy(model);
    return rc;
}

static void reading(void)
{
    static const char *const names[] = {"fixtures/gpt2", "fixtures/qwen3_sharded"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)fixture_folder(names[i]);
        check_int(read_life(), ==, 0);
        check_int(test_fail_nth(read_life), >=, 20);
    }
}

static int adapter_life(void)
{
    struct model_peft *peft = NULL;
    const int rc = model_peft_open(folder, &peft);
    model_peft_close(peft);
    return rc;
}

static void adapters(void)
{
    (void)fixture_folder("lora/llama_dora/start");
    check_int(adapter_life(), ==, 0);
    check_int(test_fail_nth(adapter_life), >=, 8);
}

/* ---- fewer bits ---- */

static struct fixture fixture;

static int read_stored(struct core_team *team, const struct model_block *block)
{
    static unsigned char to[1 << 20];
    struct model_stored *stored = NULL;
    struct model_stored_reader *reader = NULL;
    int rc = model_stored_create(fixture.model, block, MODEL_STORAGE_NF4, KERN_BF16, &stored);
    if (rc == 0 && stored != NULL) {
        const struct model_stored_source source = {
            .files = fixture.files, .block = block, .stored = stored, .team = team};
        rc = model_stored_open(&source, &reader);
        if (rc == 0) {
            rc = model_stored_read(reader, to, stored->bytes);
        }
    }
    model_stored_close(reader);
    model_stored_destroy(stored);
    return rc;
}

static int stored_life(void)
{
    struct core_team *team = NULL;
    int rc = core_team_create(&(struct core_team_options){.count = 2}, &team);
    for (unsigned b = 0; rc == 0 && b < fixture.model->block_count; b++) {
        if (model_stored_is_possible(fixture.model, &fixture.model->blocks[b])) {
            rc = read_stored(team, &fixture.model->blocks[b]);
        }
    }
    core_team_destroy(team);
    return rc;
}

static void stored(void)
{
    static const char *const frozen[] = {"*"};
    const struct model_options options = {.frozen = frozen, .frozen_count = 1};
    fixture_open(&fixture, "llama3");
    model_destroy(fixture.model);
    fixture.model = NULL;
    check_int(model_create(&fixture.config, &options, &fixture.model), ==, 0);
    check_int(model_files_check(fixture.files, fixture.model), ==, 0);
    check_int(stored_life(), ==, 0);
    check_int(test_fail_nth(stored_life), >=, 6);
    fixture_close(&fixture);
}

/* ---- writing ---- */

static char out[600];

static int put_zeros(struct model_save *save)
{
    static const float zeros[1 << 12];
    int rc = 0;
    for (unsigned b = 0; b < fixture.model->block_count; b++) {
        const uint64_t elements = fixture.model->blocks[b].elements;
        for (uint64_t at = 0; rc == 0 && at < elements; at += 1 << 12) {
            const uint64_t count = elements - at < 1 << 12 ? elements - at : 1 << 12;
            rc = model_save_put(save, b, at, count, MODEL_F32, zeros);
        }
    }
    return rc;
}

static int write_life(void)
{
    struct model_claim claim;
    struct model_save *save = NULL;
    int rc = model_claim_take(out, &claim);
    if (rc != 0) {
        return rc;
    }
    const struct model_save_options options = {.folder = out,
                                               .source = fixture.folder,
                                               .type = MODEL_BF16,
                                               .shard_bytes = 8000,
                                               .replace = true,
                                               .run = 7,
                                               .claim = &claim};
    rc = model_claim_note(&claim, "/nowhere\n");
    if (rc == 0) {
        rc = model_save_open(fixture.model, &options, &save);
    }
    if (rc == 0) {
        rc = put_zeros(save);
    }
    if (rc == 0) {
        rc = model_save_finish(save);
    }
    model_save_close(save);
    model_claim_drop(&claim);
    return rc;
}

/* After failed writes over an earlier folder, the folder is whole. */
static void writing(void)
{
    char path[700];
    struct model_files *files = NULL;
    snprintf(out, sizeof out, "%s/out", test_directory());
    fixture_open(&fixture, "llama3");
    check_int(write_life(), ==, 0);
    check_int(test_fail_nth(write_life), >=, 15);
    check_int(model_files_open(out, &files), ==, 0);
    check_int(model_files_shard_count(files), >, 1);
    check_int(model_files_check(files, fixture.model), ==, 0);
    model_files_close(files);
    fixture_close(&fixture);
    snprintf(path, sizeof path, "%s.partial", out);
    check_int(access(path, F_OK), !=, 0);
}

TEST_MAIN({"reading", reading}, {"adapters", adapters}, {"stored", stored}, {"writing", writing})
