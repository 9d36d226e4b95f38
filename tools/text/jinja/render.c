/* render.c: runs a template from variables to text, with limits of steps and memory. */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "tools/text/jinja/expressions.h"
#include "tools/text/jinja/value.h"

/* ---- memory, steps and failure of a run ---- */

enum { CHUNK_BYTES = 1 << 16, ALIGN_BYTES = 16 };

struct jinja_chunk {
    struct jinja_chunk *next; /* owned */
    size_t used;
    size_t room;
    _Alignas(ALIGN_BYTES) char bytes[];
};

struct jinja_value jinja_fail(struct jinja_run *run, int rc, const char *format, ...)
{
    if (run->rc == 0) {
        char message[512];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(message, sizeof message, format, arguments);
        va_end(arguments);
        run->rc = core_err_set(rc, "%s:%u: %s", run->source, run->line, message);
    }
    return (struct jinja_value){.kind = JINJA_UNDEFINED, .as.text = ""};
}

bool jinja_step(struct jinja_run *run, size_t steps)
{
    if (run->rc == 0 && run->steps < steps) {
        jinja_fail(run, -E2BIG, "the template does not end within %llu steps",
                   (unsigned long long)run->steps_max);
    }
    run->steps -= run->steps < steps ? run->steps : steps;
    return run->rc == 0;
}

bool jinja_step_characters(struct jinja_run *run, size_t bytes)
{
    return jinja_step(run, bytes);
}

bool jinja_step_text(struct jinja_run *run, size_t bytes)
{
    return jinja_step(run, bytes / 16);
}

bool jinja_step_bytes(struct jinja_run *run, size_t bytes)
{
    return jinja_step(run, bytes / 256);
}

bool jinja_deeper(struct jinja_run *run)
{
    if (run->depth >= JINJA_DEPTH_MAX) {
        jinja_fail(run, -E2BIG, "nested deeper than %d levels", JINJA_DEPTH_MAX);
        return false;
    }
    run->depth++;
    return true;
}

static void add_chunk(struct jinja_run *run, size_t bytes)
{
    const size_t room = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
    if (room > run->bytes_max - run->bytes) {
        jinja_fail(run, -E2BIG, "the template needs more than %zu bytes of memory", run->bytes_max);
        return;
    }
    struct jinja_chunk *chunk = core_charge_alloc(sizeof *chunk + room);
    if (chunk == NULL) {
        jinja_fail(run, -ENOMEM, "no memory to render a template");
        return;
    }
    *chunk = (struct jinja_chunk){.next = run->chunks, .room = room};
    run->chunks = chunk;
    run->bytes += room;
}

void *jinja_alloc(struct jinja_run *run, size_t bytes)
{
    const size_t padded = (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    if (!jinja_step(run, bytes / 256)) {
        return NULL;
    }
    if (run->chunks == NULL || run->chunks->room - run->chunks->used < padded) {
        add_chunk(run, padded);
        if (run->rc != 0) {
            return NULL;
        }
    }
    void *place = run->chunks->bytes + run->chunks->used;
    run->chunks->used += padded;
    memset(place, 0, bytes);
    return place;
}

struct jinja_mark jinja_mark(const struct jinja_run *run)
{
    return (struct jinja_mark){run->chunks, run->chunks != NULL ? run->chunks->used : 0};
}

void jinja_rewind(struct jinja_run *run, struct jinja_mark mark)
{
    while (run->chunks != mark.chunk) {
        struct jinja_chunk *next = run->chunks->next;
        run->bytes -= run->chunks->room;
        core_charge_free(run->chunks);
        run->chunks = next;
    }
    if (run->chunks != NULL) {
        run->chunks->used = mark.used;
    }
}

void jinja_release(struct jinja_run *run)
{
    jinja_rewind(run, (struct jinja_mark){0});
}

/* ---- from variables to text ---- */

enum { STEPS = 50000000, BYTES = 512 << 20 };

int jinja_run_create(const struct jinja_limits *limits, struct jinja_run **out)
{
    struct jinja_run *run = core_charge_zeroed(1, sizeof *run);
    if (run == NULL) {
        return core_err_set(-ENOMEM, "no memory to render templates");
    }
    run->steps_max = limits != NULL && limits->steps > 0 ? limits->steps : STEPS;
    run->bytes_max = limits != NULL && limits->bytes > 0 ? limits->bytes : BYTES;
    *out = run;
    return 0;
}

/* Resets the run before a rendering. */
static void restart(struct jinja_run *run)
{
    jinja_release(run);
    run->steps = run->steps_max;
    run->rc = 0;
    run->line = 1;
    run->depth = 0;
}

static void exchange_chunks(struct jinja_run *run)
{
    struct jinja_chunk *chunks = run->chunks;
    run->chunks = run->kept_chunks;
    run->kept_chunks = chunks;
}

int jinja_run_keep(struct jinja_run *run, const struct core_json_value *json)
{
    exchange_chunks(run);
    restart(run);
    run->source = "messages";
    run->kept_json = NULL;
    if (json != NULL) {
        run->kept = jinja_from_json(run, json, 0);
    }
    if (run->rc == 0) {
        run->kept_json = json;
    } else {
        jinja_release(run);
    }
    exchange_chunks(run);
    return run->rc;
}

void jinja_run_destroy(struct jinja_run *run)
{
    if (run != NULL) {
        jinja_run_keep(run, NULL);
        jinja_release(run);
        core_charge_free(run->out);
        core_charge_free(run->spans);
        core_charge_free(run);
    }
}

/* The first elements of the kept list. */
static struct jinja_value share_kept(struct jinja_run *run, size_t items_max)
{
    struct jinja_value list = run->kept;
    if (list.kind == JINJA_LIST && items_max > 0 && items_max < list.as.list->count) {
        list.as.list = jinja_alloc(run, sizeof *list.as.list);
        if (list.as.list == NULL) {
            return jinja_none();
        }
        list.as.list->items = run->kept.as.list->items;
        list.as.list->count = list.as.list->room = items_max;
    }
    return list;
}

static void set_variable(struct jinja_run *run, const struct jinja_variable *variable)
{
    struct jinja_value value = jinja_none();
    const unsigned name = jinja_name_find(run->names, variable->name, strlen(variable->name));
    if (name == UINT_MAX) {
        return; /* the template does not use it */
    }
    switch (variable->kind) {
    case JINJA_VARIABLE_NONE: break;
    case JINJA_VARIABLE_BOOL: value = jinja_bool(variable->truth); break;
    case JINJA_VARIABLE_TEXT: value = jinja_string(variable->text, strlen(variable->text)); break;
    case JINJA_VARIABLE_JSON:
        value = run->kept_json != NULL && variable->json == run->kept_json
                    ? share_kept(run, variable->items_max)
                    : jinja_from_json(run, variable->json, variable->items_max);
        break;
    }
    jinja_scope_set(run, name, value);
}

static const struct jinja_links links = {
    .find_filter = jinja_filter_find, .find_method = jinja_method_find, .call = jinja_call_value};

int jinja_render(const struct jinja_template *source, struct jinja_run *run,
                 const struct jinja_variable *variables, size_t count, int64_t now,
                 struct jinja_rendering *out)
{
    restart(run);
    run->source = source->name;
    run->out_bytes = run->captures = run->capture_base = run->spans_count = 0;
    run->links = &links;
    run->names = &source->names;
    run->jump = JINJA_JUMP_NONE;
    run->now = now;
    run->scope = jinja_scope_make(run, NULL);
    for (size_t i = 0; i < count && run->rc == 0; i++) {
        set_variable(run, &variables[i]);
    }
    /* The scope of a macro is inside the variables of the template, not inside those of its
     * caller. */
    if (run->rc == 0) {
        run->scope = jinja_scope_make(run, run->scope);
    }
    jinja_write(run, "", 0);
    jinja_execute(run, source->body);
    run->scope = NULL;
    if (run->rc != 0) {
        return run->rc;
    }
    *out = (struct jinja_rendering){.text = run->out,
                                    .bytes = run->out_bytes,
                                    .generated = run->spans,
                                    .generated_count = run->spans_count};
    return 0;
}
