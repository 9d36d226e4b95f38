/* context.c: contexts pass messages and progress to the application, and own a claim on a folder.
 * One thread at a time, except for messages. */
#include "offload/api/context.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "offload/api/abi.h"
#include "offload/api/context_parts.h"

_Static_assert((int)TIDE_LOG_ERROR == (int)CORE_LOG_ERROR &&
                   (int)TIDE_LOG_DEBUG == (int)CORE_LOG_DEBUG,
               "levels are the same inside and outside");

static void write_line(void *user, enum core_log_level level, const char *line)
{
    const struct tide_context *context = user;
    context->log(context->user, (uint32_t)level, line);
}

int tide_context_create(const struct tide_context_options *options, struct tide_context **out)
{
    struct tide_context_options known = {0};
    int rc = abi_pointer_check("`out`", out);
    if (rc == 0 && options != NULL) {
        rc = abi_struct_read("tide_context_options", options, &known, sizeof known);
    }
    if (rc != 0) {
        return rc;
    }
    if (known.log_level > TIDE_LOG_DEBUG) {
        return core_err_set(-EINVAL,
                            "log_level is %" PRIu64 "; %d (errors) to %d (debug) are allowed",
                            known.log_level, TIDE_LOG_ERROR, TIDE_LOG_DEBUG);
    }
    struct tide_context *context = calloc(1, sizeof *context);
    if (context == NULL) {
        return core_err_set(-ENOMEM, "no memory for a context");
    }
    context->log = known.log;
    context->progress = known.progress;
    context->user = known.user;
    context->claim.fd = -1;
    context->sink = (struct core_log){
        .level = (enum core_log_level)known.log_level,
        .write = write_line,
        .user = context,
    };
    *out = context;
    return 0;
}

void tide_context_destroy(struct tide_context *context)
{
    if (context != NULL) {
        model_claim_drop(&context->claim);
    }
    free(context);
}

struct context_before context_enter(const struct tide_context *context)
{
    struct context_before before = {.log = core_log_bound()};
    core_thread_fpu_enter(&before.fpu);
    core_log_bind(context != NULL && context->log != NULL ? &context->sink : NULL);
    return before;
}

void context_leave(const struct context_before *before)
{
    core_log_bind(before->log);
    core_thread_fpu_leave(&before->fpu);
}

int context_progress(const struct tide_context *context, const char *phase, uint64_t done,
                     uint64_t total)
{
    if (context == NULL || context->progress == NULL) {
        return 0;
    }
    struct tide_progress progress = {
        .struct_bytes = sizeof progress, .phase = phase, .done = done, .total = total};
    if (context->progress(context->user, &progress) != 0) {
        return core_err_set(-ECANCELED, "the application asked to stop during \"%s\"", phase);
    }
    return 0;
}
