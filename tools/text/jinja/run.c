/* run.c: memory, steps and failure of a run of a template. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "tools/text/jinja/value.h"

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
