/* names.c: the names of a template, each with a number. */
#include <limits.h>
#include <string.h>

#include "tools/text/jinja/node.h"

unsigned jinja_name_find(const struct jinja_names *names, const char *text, size_t bytes)
{
    for (unsigned i = 0; i < names->count; i++) {
        if (names->items[i].bytes == bytes && memcmp(names->items[i].as.text, text, bytes) == 0) {
            return i;
        }
    }
    return UINT_MAX;
}

unsigned jinja_name(struct jinja_run *run, struct jinja_names *names, const char *text,
                    size_t bytes)
{
    const unsigned there = jinja_step(run, names->count) ? jinja_name_find(names, text, bytes)
                                                         : UINT_MAX;
    if (there != UINT_MAX || run->rc != 0) {
        return there != UINT_MAX ? there : 0;
    }
    if (names->count == names->room) {
        const unsigned room = names->room * 2 + 64;
        struct jinja_value *more = jinja_alloc(run, room * sizeof *more);
        if (more == NULL) {
            return 0;
        }
        if (names->count > 0) {
            memcpy(more, names->items, names->count * sizeof *more);
        }
        names->items = more;
        names->room = room;
    }
    names->items[names->count] = jinja_string_copy(run, text, bytes);
    return names->count++;
}
