/* checkpoint.c: resumes an application's engine from a checkpoint, and saves checkpoints. The
 * caller's thread. */
#include <tide/checkpoint.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "offload/api/abi.h"
#include "offload/api/context.h"
#include "offload/api/engine_parts.h"
#include "offload/run/checkpoint.h"

enum { PATH_BYTES = 4096 };

/* ---- resuming ---- */

/* *other: the options do not match, so older checkpoints will not match either. */
static int look(struct tide_engine *engine, const char *path, bool *other)
{
    struct store_manifest manifest = {.step = 0};
    int rc = store_checkpoint_peek(path, &manifest);
    if (rc != 0) {
        return rc;
    }
    rc = run_checkpoint_check(&manifest, engine->setup.model->flat, &engine->setup.options);
    *other = rc == -EINVAL;
    if (rc != 0) {
        store_manifest_fini(&manifest);
        return core_err_prefix(rc, "%s cannot be resumed", path);
    }
    store_manifest_fini(&engine->resumed);
    engine->resumed = manifest;
    return 0;
}

static int try_one(struct tide_engine *engine, struct run_engine_options *run, const char *path,
                   bool *other)
{
    bool damaged = false;
    run->checkpoint = path;
    run->shelf = engine->shelf;
    run->damaged = &damaged;
    int rc = look(engine, path, other);
    if (rc != 0) {
        return rc;
    }
    rc = run_engine_create(run, &engine->engine);
    *other = rc != 0 && (!damaged || rc == -ECANCELED || rc == -ENOMEM);
    if (rc == 0) {
        run_checkpoint_compare_products(&engine->resumed,
                                        run_engine_position(engine->engine).products);
    }
    return rc;
}

/* Skips damaged checkpoints with a warning; other errors end the search. */
static int begin_from(struct tide_engine *engine, struct run_engine_options *run,
                      const char *directory, const uint64_t *steps, size_t count)
{
    int rc = 0;
    for (size_t i = count; i-- > 0;) {
        char path[PATH_BYTES];
        bool other = false;
        store_shelf_path(directory, steps[i], path, sizeof path);
        rc = try_one(engine, run, path, &other);
        if (rc == 0) {
            snprintf(engine->resumed_path, sizeof engine->resumed_path, "%s", path);
            core_log(CORE_LOG_INFO, "resumed from %s after %" PRIu64 " step%s", path, steps[i],
                     steps[i] == 1 ? "" : "s");
            return 0;
        }
        if (other) {
            return rc;
        }
        engine->passed_over++;
        core_log(CORE_LOG_WARN, "%s is skipped: %s", path, core_err_message());
    }
    return core_err_prefix(rc, "none of the %zu checkpoints in %s verifies; the oldest", count,
                           directory);
}

int engine_begin(struct tide_engine *engine, struct run_engine_options *run)
{
    const char *directory = engine->setup.given.resume;
    uint64_t *steps = NULL;
    size_t count = 0;
    int rc = directory != NULL ? store_shelf_list(directory, &steps, &count) : 0;
    if (rc == 0 && count > 0) {
        rc = store_shelf_open(directory, &engine->shelf);
    }
    if (rc == 0 && count == 0) {
        rc = run_engine_create(run, &engine->engine);
    } else if (rc == 0) {
        rc = begin_from(engine, run, directory, steps, count);
    }
    free(steps);
    return rc;
}

static int peek(const char *directory, void *out, size_t room, size_t *bytes)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    bool found = false;
    int rc = store_shelf_list(directory, &steps, &count);
    for (size_t i = count; rc == 0 && !found && i-- > 0;) {
        struct store_manifest manifest = {.step = 0};
        char path[PATH_BYTES];
        store_shelf_path(directory, steps[i], path, sizeof path);
        found = store_checkpoint_peek(path, &manifest) == 0;
        if (found) {
            *bytes = manifest.application_bytes;
            if (*bytes > room) {
                rc = core_err_set(-EFBIG,
                                  "%s has %zu bytes of the application; there is room for %zu",
                                  path, *bytes, room);
            } else if (*bytes > 0) {
                memcpy(out, manifest.application, *bytes);
            }
        }
        store_manifest_fini(&manifest);
    }
    free(steps);
    return rc != 0 || found ? rc
                            : core_err_set(-ENOENT, "no checkpoint in %s can be read", directory);
}

int tide_checkpoint_peek(struct tide_context *context, const char *directory, void *out,
                         size_t room, size_t *bytes)
{
    if (directory == NULL || bytes == NULL || (out == NULL && room > 0)) {
        return core_err_set(-EINVAL, "tide_checkpoint_peek needs a directory, memory for the bytes "
                                     "and an output parameter for their number");
    }
    const struct context_before before = context_enter(context);
    int rc = peek(directory, out, room, bytes);
    context_leave(&before);
    return rc;
}

int tide_engine_resumed(const struct tide_engine *engine, struct tide_resumed *out)
{
    int rc = abi_pointer_check("the engine", engine);
    if (rc != 0) {
        return rc;
    }
    const bool any = engine->resumed_path[0] != '\0';
    struct tide_resumed made = {
        .step = any ? engine->resumed.step : 0,
        .path = any ? engine->resumed_path : NULL,
        .passed_over = engine->passed_over,
        .application = any ? engine->resumed.application : NULL,
        .application_bytes = any ? engine->resumed.application_bytes : 0,
    };
    return abi_struct_write("tide_resumed", &made, sizeof made, out);
}

/* ---- saving ---- */

/* False for an unreadable checkpoint. */
static bool is_foreign(const struct tide_engine *engine, const char *directory, uint64_t step)
{
    struct store_manifest manifest = {.step = 0};
    char path[PATH_BYTES];
    store_shelf_path(directory, step, path, sizeof path);
    const bool foreign = store_checkpoint_peek(path, &manifest) == 0 &&
                         manifest.run != run_engine_position(engine->engine).run;
    store_manifest_fini(&manifest);
    return foreign;
}

enum sorting { SORT_REFUSE, SORT_COUNT, SORT_REMOVE };

/* Refuses, counts or removes checkpoints of other runs. Adds the number of those seen to *found. */
static int sort_out(struct tide_engine *engine, const char *directory, enum sorting sorting,
                    size_t *found)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    int rc = store_shelf_list(directory, &steps, &count);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        if (!is_foreign(engine, directory, steps[i])) {
            continue;
        }
        ++*found;
        if (sorting == SORT_REMOVE) {
            store_shelf_remove(engine->shelf, steps[i]);
        } else if (sorting == SORT_REFUSE) {
            rc = core_err_set(-EEXIST,
                              "%s has checkpoint-%" PRIu64
                              " of another run: resume that one, or use another folder, or request "
                              "the replacement of its checkpoints",
                              directory, steps[i]);
        }
    }
    free(steps);
    return rc;
}

static int hold_shelf(struct tide_engine *engine, const char *directory)
{
    if (directory == NULL || directory[0] == '\0') {
        return core_err_set(-EINVAL, "no directory for checkpoints was given");
    }
    if (engine->shelf != NULL && store_shelf_is(engine->shelf, directory)) {
        return 0;
    }
    struct store_shelf *shelf = NULL;
    int rc = store_shelf_open(directory, &shelf);
    if (rc == 0) {
        store_shelf_close(engine->shelf);
        engine->shelf = shelf;
    }
    return rc;
}

/* Without `replace`, checkpoints of other runs are an error. */
static int prepare(struct tide_engine *engine, const struct tide_checkpoint_options *from,
                   struct tide_checkpoint_options *options, size_t *others)
{
    int rc = abi_struct_read("tide_checkpoint_options", from, options, sizeof *options);
    if (rc == 0 && options->application_bytes > 0 && options->application == NULL) {
        rc = core_err_set(-EINVAL, "application_bytes is %zu, but application is NULL",
                          options->application_bytes);
    }
    if (rc != 0) {
        return rc;
    }
    rc = hold_shelf(engine, options->directory);
    if (rc != 0) {
        return rc;
    }
    return sort_out(engine, options->directory, options->replace ? SORT_COUNT : SORT_REFUSE,
                    others);
}

static struct run_save_options wanted_of(const struct tide_engine *engine,
                                         const struct tide_checkpoint_options *options)
{
    return (struct run_save_options){
        .shelf = engine->shelf,
        .source = engine->setup.folder,
        .keep = options->keep,
        .application = options->application,
        .application_bytes = options->application_bytes,
    };
}

static int save(struct tide_engine *engine, const struct tide_checkpoint_options *from)
{
    struct tide_checkpoint_options options;
    size_t others = 0;
    int rc = prepare(engine, from, &options, &others);
    if (rc != 0) {
        return rc;
    }
    const struct run_save_options wanted = wanted_of(engine, &options);
    /* Checkpoints of other runs are removed only once the new one is complete. */
    rc = options.later && others == 0 ? run_engine_save(engine->engine, &wanted, RUN_SAVE_LATER)
                                      : run_engine_save(engine->engine, &wanted, RUN_SAVE_NOW);
    if (rc == 0 && others > 0) {
        rc = sort_out(engine, options.directory, SORT_REMOVE, &others);
    }
    engine->step_ns = core_clock_now_ns();
    return rc;
}

/* Announces a checkpoint after the next step, unless checkpoints of other runs would be removed. */
static int save_ahead(struct tide_engine *engine, const struct tide_checkpoint_options *from)
{
    struct tide_checkpoint_options options;
    size_t others = 0;
    int rc = prepare(engine, from, &options, &others);
    if (rc != 0 || others > 0) {
        return rc;
    }
    options.application = NULL;
    options.application_bytes = 0;
    const struct run_save_options wanted = wanted_of(engine, &options);
    return run_engine_save(engine->engine, &wanted, RUN_SAVE_NEXT_STEP);
}

int tide_engine_checkpoint_ahead(struct tide_engine *engine,
                                 const struct tide_checkpoint_options *options)
{
    struct context_before before;
    int rc = engine_enter(engine, &before);
    if (rc == 0) {
        rc = save_ahead(engine, options);
        context_leave(&before);
    }
    return rc;
}

int tide_engine_checkpoint(struct tide_engine *engine,
                           const struct tide_checkpoint_options *options)
{
    struct context_before before;
    int rc = engine_enter(engine, &before);
    if (rc == 0) {
        rc = save(engine, options);
        context_leave(&before);
    }
    return rc;
}

int tide_engine_checkpoint_wait(struct tide_engine *engine)
{
    struct context_before before;
    int rc = engine_enter(engine, &before);
    if (rc == 0) {
        rc = run_engine_save_wait(engine->engine);
        engine->step_ns = core_clock_now_ns();
        context_leave(&before);
    }
    return rc;
}
