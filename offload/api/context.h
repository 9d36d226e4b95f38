/* context.h: scope of a public call: the log sink and floating-point environment of its thread. */
#ifndef OFFLOAD_API_CONTEXT_H
#define OFFLOAD_API_CONTEXT_H

#include <stdint.h>

#include "core/base/log.h"
#include "core/base/thread.h"

struct tide_context;

/* State of the calling thread that context_leave restores. */
struct context_before {
    const struct core_log *log;
    fenv_t fpu;
};

/* Binds the context's sink to the calling thread and its new threads, and sets the default
 * floating-point environment. `context` NULL: no sink. */
struct context_before context_enter(const struct tide_context *context);
void context_leave(const struct context_before *before);

/* Reports progress. Returns -ECANCELED with a message if the application asked to stop. */
int context_progress(const struct tide_context *context, const char *phase, uint64_t done,
                     uint64_t total);

#endif
