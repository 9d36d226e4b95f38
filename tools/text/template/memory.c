/* memory.c: what a run may use, steps and bytes, and how it fails. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "tools/text/template/value.h"

enum { CHUNK_BYTES = 1 << 16, ALIGN_BYTES = 16 };

struct template_chunk {
    struct template_chunk *next; /* owned */
    size_t used;
    size_t room;
    _Alignas(ALIGN_BYTES) char bytes[];
};

struct template_value template_fail(struct text_template_run *run, int code, const char *format,
                                    ...)
{
    if (run->code == 0) {
        char sentence[512];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(sentence, sizeof sentence, format, arguments);
        va_end(arguments);
        run->code = core_err_set(code, "%s:%u: %s", run->source, run->line, sentence);
    }
    return template_undefined("");
}

bool template_step(struct text_template_run *run, size_t steps)
{
    if (run->code == 0 && run->steps < steps) {
        template_fail(run, -E2BIG, "the template does not end within %llu steps",
                      (unsigned long long)run->steps_max);
    }
    run->steps -= run->steps < steps ? run->steps : steps;
    return run->code == 0;
}

bool template_step_characters(struct text_template_run *run, size_t bytes)
{
    return template_step(run, bytes);
}

bool template_step_text(struct text_template_run *run, size_t bytes)
{
    return template_step(run, bytes / 16);
}

bool template_step_bytes(struct text_template_run *run, size_t bytes)
{
    return template_step(run, bytes / 256);
}

bool template_deeper(struct text_template_run *run)
{
    if (run->depth >= TEMPLATE_DEPTH_MAX) {
        template_fail(run, -E2BIG, "more than %d levels of nesting", TEMPLATE_DEPTH_MAX);
        return false;
    }
    run->depth++;
    return true;
}

static void add_chunk(struct text_template_run *run, size_t bytes)
{
    const size_t room = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
    if (room > run->bytes_max - run->bytes) {
        template_fail(run, -E2BIG, "the template needs more than %zu bytes of memory",
                      run->bytes_max);
        return;
    }
    struct template_chunk *chunk = core_charge_alloc(sizeof *chunk + room);
    if (chunk == NULL) {
        template_fail(run, -ENOMEM, "no memory to render a template");
        return;
    }
    *chunk = (struct template_chunk){.next = run->chunks, .room = room};
    run->chunks = chunk;
    run->bytes += room;
}

void *template_alloc(struct text_template_run *run, size_t bytes)
{
    const size_t padded = (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    if (!template_step(run, bytes / 256)) {
        return NULL;
    }
    if (run->chunks == NULL || run->chunks->room - run->chunks->used < padded) {
        add_chunk(run, padded);
        if (run->code != 0) {
            return NULL;
        }
    }
    void *place = run->chunks->bytes + run->chunks->used;
    run->chunks->used += padded;
    memset(place, 0, bytes);
    return place;
}

struct template_mark template_mark(const struct text_template_run *run)
{
    return (struct template_mark){run->chunks, run->chunks != NULL ? run->chunks->used : 0};
}

void template_rewind(struct text_template_run *run, struct template_mark mark)
{
    while (run->chunks != mark.chunk) {
        struct template_chunk *next = run->chunks->next;
        run->bytes -= run->chunks->room;
        core_charge_free(run->chunks);
        run->chunks = next;
    }
    if (run->chunks != NULL) {
        run->chunks->used = mark.used;
    }
}

void template_release(struct text_template_run *run)
{
    template_rewind(run, (struct template_mark){0});
}
