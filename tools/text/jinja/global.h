/* global.h: global functions and their objects: loop, cycler, joiner (private to
 * tools/text/jinja). */
#ifndef TOOLS_TEXT_JINJA_GLOBAL_H
#define TOOLS_TEXT_JINJA_GLOBAL_H

#include "tools/text/jinja/function.h"

struct jinja_value jinja_loop_attribute(struct jinja_run *run, struct jinja_value loop,
                                        const char *name, size_t bytes);
struct jinja_value jinja_cycler_attribute(struct jinja_run *run, struct jinja_value cycler,
                                          const char *name, size_t bytes);
/* Returns an empty text at the first call of a joiner, then its separator. */
struct jinja_value jinja_joiner_call(struct jinja_value joiner);

#endif
