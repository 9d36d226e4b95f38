/* print.h: prints commands, for tests and `tide plan --tape`. Pure. */
#ifndef OFFLOAD_PLAN_PRINT_H
#define OFFLOAD_PLAN_PRINT_H

#include <stddef.h>

#include "offload/plan/plan.h"

/* Prints a command as one line without a newline, here broken into two:
 *   "compute       12  FWD    layer 3 #0 reads device:wslot[1] device:act(2.0)
 *    writes device:act(3.0) after up 4, update -1"
 * Returns the length as snprintf does. */
int plan_print_command(const struct plan_input *input, const struct plan *plan,
                       const struct plan_command *command, char *text, size_t bytes);

const char *plan_resource_name(enum plan_resource resource);

#endif
