/* context.h: what a public function does first and last: bind the context's sink to this thread. */
#ifndef OFFLOAD_API_CONTEXT_H
#define OFFLOAD_API_CONTEXT_H

#include <stdint.h>

#include "core/base/log.h"

struct tide_context;

/* Binds the context's sink to the calling thread, and with it to the threads it starts; returns the
 * binding that stood, for context_leave. `context` NULL binds none. */
const struct core_log *context_enter(const struct tide_context *context);
void context_leave(const struct core_log *before);

/* Reports progress; 0, or -ECANCELED with a sentence where the application asked to stop. */
int context_progress(const struct tide_context *context, const char *phase, uint64_t done,
                     uint64_t total);

#endif
