/* folder.c: the right to write a folder, taken before there is an engine that will. The caller's thread. */
#include "offload/api/folder.h"

#include <errno.h>
#include <tide/engine.h>

#include "core/base/err.h"
#include "offload/api/context.h"
#include "offload/api/context_parts.h"

int folder_check(const char *folder)
{
    return folder == NULL || folder[0] == '\0'
               ? core_err_set(-EINVAL, "no folder to save to is given")
               : 0;
}

bool folder_take_over(struct tide_context *context, const char *folder, struct model_claim *claim)
{
    struct model_claim *kept = context != NULL ? &context->claim : NULL;
    if (kept == NULL || !model_claim_holds(kept, folder)) {
        return false;
    }
    model_claim_drop(claim);
    *claim = *kept;
    *kept = (struct model_claim){.fd = -1};
    return true;
}

static int claim(struct tide_context *context, const char *folder)
{
    struct model_claim taken = {.fd = -1};
    int rc = context == NULL ? core_err_set(-EINVAL, "no context to keep a folder for is given")
                             : folder_check(folder);
    if (rc != 0 || model_claim_holds(&context->claim, folder)) {
        return rc;
    }
    rc = model_claim_take(folder, &taken);
    if (rc == 0) {
        model_claim_drop(&context->claim);
        context->claim = taken;
    }
    return rc;
}

int tide_folder_claim(struct tide_context *context, const char *folder)
{
    const struct core_log *before = context_enter(context);
    int rc = claim(context, folder);
    context_leave(before);
    return rc;
}

void tide_folder_unclaim(struct tide_context *context)
{
    if (context != NULL) {
        model_claim_undo(&context->claim);
    }
}
