/* context_parts.h: struct tide_context; private to context.c and folder.c. */
#ifndef OFFLOAD_API_CONTEXT_PARTS_H
#define OFFLOAD_API_CONTEXT_PARTS_H

#include <tide/tide.h>

#include "core/base/log.h"
#include "offload/model/claim.h"

struct tide_context {
    struct core_log sink;
    void (*log)(void *user, uint32_t level, const char *line);
    int (*progress)(void *user, const struct tide_progress *progress);
    void *user;               /* borrowed from the application */
    struct model_claim claim; /* owned: claim on the folder of a later engine */
};

#endif
