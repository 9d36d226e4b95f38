/* render.c: a run from its beginning to its end: variables in, text out. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "tools/text/template/eval.h"

enum { STEPS = 50000000, BYTES = 512 << 20 };

int text_template_run_create(const struct text_template_limits *limits,
                             struct text_template_run **out)
{
    struct text_template_run *run = core_charge_zeroed(1, sizeof *run);
    if (run == NULL) {
        return core_err_set(-ENOMEM, "no memory to render templates");
    }
    run->steps_max = limits != NULL && limits->steps > 0 ? limits->steps : STEPS;
    run->bytes_max = limits != NULL && limits->bytes > 0 ? limits->bytes : BYTES;
    *out = run;
    return 0;
}

/* Before anything is evaluated. */
static void restart(struct text_template_run *run)
{
    template_release(run);
    run->steps = run->steps_max;
    run->code = 0;
    run->line = 1;
    run->depth = 0;
}

static void exchange_chunks(struct text_template_run *run)
{
    struct template_chunk *chunks = run->chunks;
    run->chunks = run->kept_chunks;
    run->kept_chunks = chunks;
}

int text_template_run_keep(struct text_template_run *run, const struct core_json_value *json)
{
    exchange_chunks(run);
    restart(run);
    run->source = "messages";
    run->kept_json = NULL;
    if (json != NULL) {
        run->kept = template_from_json(run, json, 0);
    }
    if (run->code == 0) {
        run->kept_json = json;
    } else {
        template_release(run);
    }
    exchange_chunks(run);
    return run->code;
}

void text_template_run_destroy(struct text_template_run *run)
{
    if (run != NULL) {
        text_template_run_keep(run, NULL);
        template_release(run);
        core_charge_free(run->out);
        core_charge_free(run->spans);
        core_charge_free(run);
    }
}

/* The beginning of the list that is kept. */
static struct template_value share_kept(struct text_template_run *run, size_t items_max)
{
    struct template_value list = run->kept;
    if (list.kind == TEMPLATE_LIST && items_max > 0 && items_max < list.as.list->count) {
        list.as.list = template_alloc(run, sizeof *list.as.list);
        if (list.as.list == NULL) {
            return template_none();
        }
        list.as.list->items = run->kept.as.list->items;
        list.as.list->count = list.as.list->room = items_max;
    }
    return list;
}

static void set_variable(struct text_template_run *run,
                         const struct text_template_variable *variable)
{
    struct template_value value = template_none();
    const unsigned name = template_name_find(run->names, variable->name, strlen(variable->name));
    if (name == UINT_MAX) {
        return; /* the template does not ask for it */
    }
    switch (variable->kind) {
    case TEXT_TEMPLATE_NONE: break;
    case TEXT_TEMPLATE_BOOL: value = template_bool(variable->truth); break;
    case TEXT_TEMPLATE_TEXT: value = template_string(variable->text, strlen(variable->text)); break;
    case TEXT_TEMPLATE_JSON:
        value = run->kept_json != NULL && variable->json == run->kept_json
                    ? share_kept(run, variable->items_max)
                    : template_from_json(run, variable->json, variable->items_max);
        break;
    }
    template_scope_set(run, name, value);
}

int text_template_render(const struct text_template *source, struct text_template_run *run,
                         const struct text_template_variable *variables, size_t count, int64_t now,
                         struct text_rendering *out)
{
    restart(run);
    run->source = source->name;
    run->out_bytes = run->captures = run->capture_base = run->spans_count = 0;
    run->names = &source->names;
    run->jump = TEMPLATE_JUMP_NONE;
    run->now = now;
    run->scope = template_scope_make(run, NULL);
    for (size_t i = 0; i < count && run->code == 0; i++) {
        set_variable(run, &variables[i]);
    }
    /* A macro's scope ends where the template's own variables are, which are not the caller's. */
    if (run->code == 0) {
        run->scope = template_scope_make(run, run->scope);
    }
    template_write(run, "", 0);
    template_execute(run, source->body);
    run->scope = NULL;
    if (run->code != 0) {
        return run->code;
    }
    *out = (struct text_rendering){.text = run->out,
                                   .bytes = run->out_bytes,
                                   .generated = run->spans,
                                   .generated_count = run->spans_count};
    return 0;
}
