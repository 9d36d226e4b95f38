/* render.c: renders a template with limits of steps and memory. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "tools/text/jinja/expressions.h"
#include "tools/text/jinja/value.h"

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

/* Returns the kept value or, of a list, the first `items_max` elements (0: all). */
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

static const struct jinja_links links = {.find_filter = jinja_filter_find,
                                         .find_method = jinja_method_find,
                                         .call = jinja_call_value,
                                         .reach = jinja_loop_reach,
                                         .format_percent = jinja_format_percent};

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
    /* The template assigns in a scope of its own; a macro sees the scope of its definition. */
    if (run->rc == 0) {
        run->scope = jinja_scope_make(run, run->scope);
    }
    jinja_execute(run, source->body);
    jinja_write(run, "", 0); /* a NUL after the text */
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
