/* test_life_saves.c: if a request to the system fails while a run saves or resumes, the run
 * reports the failure and frees everything. */
#include <stdio.h>

#include "tests/harness/fail_alloc.h"
#include "tests/harness/test.h"
#include "tests/run/case.h"

static struct case_model made;
static struct run_options options;
static struct run_prepared *prepared;

static void begin(bool saves)
{
    test_directory_in_memory();
    case_model_make(&made, "llama tied");
    options = case_options();
    options.threads = 1;
    case_store(&options, "mem");
    options.wishes.weights = options.wishes.states = PLAN_WHERE_STORE;
    options.wishes.saves = saves;
    check_int(run_prepared_create(made.model, &options, case_rates(), &prepared), ==, 0);
}

static void end(void)
{
    run_prepared_destroy(prepared);
    case_model_free(&made);
}

static struct store_shelf *shelf;
static struct run_engine *saving;

/* Saves one checkpoint that updates write, and one that is read out. */
static int save_life(void)
{
    const struct run_save_options save = {.shelf = shelf, .keep = 1};
    struct run_step step;
    int32_t ids[CASE_ROWS * CASE_LENGTH];
    const struct model_batch batch = case_batch(&made, 0, 0, ids);
    int rc = run_engine_save(saving, &save, RUN_SAVE_NEXT_STEP);
    check_int(run_engine_step(saving, &batch, 1, 1e-3, &step), ==, 0);
    if (rc == 0) {
        rc = run_engine_save(saving, &save, RUN_SAVE_LATER);
    }
    const int ended = run_engine_save_wait(saving);
    rc = rc != 0 ? rc : ended;
    check_int(run_engine_drain(saving), ==, 0);
    if (rc != 0 || TEST_SLOW) { /* test_save.c does this under a sanitizer */
        return rc;
    }
    return run_engine_save(saving, &save, RUN_SAVE_NOW);
}

/* After a failed save the run continues, and the next checkpoint is written. */
static void saves(void)
{
    begin(true);
    const struct run_engine_options engine_options = {
        .prepared = prepared, .options = &options, .model = made.model, .files = made.files};
    shelf = case_shelf_open();
    check_int(run_engine_create(&engine_options, &saving), ==, 0);
    check_int(save_life(), ==, 0);
    const unsigned requests = test_fail_every(save_life, TEST_STRIDE(3));
    test_note("%u requests", requests);
    check_int(requests, >=, 50);
    check_int(save_life(), ==, 0);
    check_true(run_engine_destroy(saving));
    store_shelf_close(shelf);
    end();
}

static char resumed_from[700];

static int resume_life(void)
{
    const struct run_engine_options engine_options = {.prepared = prepared,
                                                      .options = &options,
                                                      .model = made.model,
                                                      .files = made.files,
                                                      .checkpoint = resumed_from};
    struct run_engine *engine = NULL;
    int rc = run_engine_create(&engine_options, &engine);
    run_engine_destroy(engine);
    return rc;
}

/* A run that cannot resume ends with a message and frees everything. */
static void resumes(void)
{
    struct case_outcome outcome = {.steps = 0};
    begin(false);
    shelf = case_shelf_open();
    const struct run_save_options save = {.shelf = shelf, .keep = 1};
    const struct case_part part = {.end = 1, .save = &save, .save_after = 1};
    case_run_part(&made, &options, &part, &outcome, "saved");
    store_shelf_path(store_shelf_directory(shelf), 1, resumed_from, sizeof resumed_from);
    check_int(resume_life(), ==, 0);
    const unsigned requests = test_fail_every(resume_life, TEST_STRIDE(3));
    test_note("%u requests", requests);
    check_int(requests, >=, 100);
    store_shelf_close(shelf);
    end();
}

TEST_MAIN({"saves", saves}, {"resumes", resumes})
