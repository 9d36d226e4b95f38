/* global.h: functions without a value in front, and the objects they make: loop, cycler, joiner
 * (private to tools/text/template). */
#ifndef TOOLS_TEXT_TEMPLATE_GLOBAL_H
#define TOOLS_TEXT_TEMPLATE_GLOBAL_H

#include "tools/text/template/function.h"

struct template_value template_loop_attribute(struct text_template_run *run,
                                              struct template_value loop, const char *name,
                                              size_t bytes);
struct template_value template_cycler_attribute(struct text_template_run *run,
                                                struct template_value cycler, const char *name,
                                                size_t bytes);
/* A joiner called: nothing the first time, its separator afterwards. */
struct template_value template_joiner_call(struct template_value joiner);

#endif
