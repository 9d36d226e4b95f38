/* folder.c: claims folders before engines write them. The caller's thread. */
#include "offload/api/folder.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tide/engine.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "offload/api/context.h"
#include "offload/api/context_parts.h"
#include "offload/api/setup.h"
#include "offload/store/ranks.h"

int folder_check(const char *folder)
{
    return folder == NULL || folder[0] == '\0'
               ? core_err_set(-EINVAL, "no folder to save to was given")
               : 0;
}

/* The folder's lock proves that the noted run has ended. An extent file is removed only if its
 * header and lock prove that the file is tide's and unused. */
int folder_claim(const char *folder, struct model_claim *claim)
{
    int rc = model_claim_take(folder, claim);
    char *rest = NULL;
    for (char *line = rc == 0 && claim->noted != NULL ? strtok_r(claim->noted, "\n", &rest) : NULL;
         line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        if (line[0] == '/' && access(line, F_OK) == 0) {
            store_ranks_clear(line, 0);
        }
    }
    return rc;
}

/* The directory may not exist yet. */
static void add_path(char *text, size_t bytes, const char *directory)
{
    const size_t length = strlen(text);
    char path[PATH_MAX];
    char here[PATH_MAX];
    if (directory[0] == '/') {
        snprintf(text + length, bytes - length, "%s\n", directory);
    } else if (realpath(directory, path) != NULL) {
        snprintf(text + length, bytes - length, "%s\n", path);
    } else if (getcwd(here, sizeof here) != NULL) {
        snprintf(text + length, bytes - length, "%s/%s\n", here, directory);
    }
}

void folder_note_stores(const struct tide_context *context, const struct model_claim *claim,
                        const struct setup *setup)
{
    enum { NOTE_BYTES = TIDE_STORES_MAX * (2 * PATH_MAX + 2) };
    const struct run_options *options = &setup->options;
    const bool memory = options->io != NULL && strcmp(options->io, "mem") == 0;
    claim = claim != NULL || context == NULL ? claim : &context->claim;
    const bool any = claim != NULL && claim->path != NULL && !memory && options->store_count > 0;
    char *text = any ? calloc(1, NOTE_BYTES) : NULL;
    for (unsigned i = 0; text != NULL && i < options->store_count; i++) {
        add_path(text, NOTE_BYTES, options->stores[i].directory);
    }
    if (text != NULL && model_claim_note(claim, text) != 0) {
        core_log(CORE_LOG_WARN, "%s", core_err_message());
    }
    free(text);
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
    int rc = context == NULL ? core_err_set(-EINVAL, "no context was given") : folder_check(folder);
    if (rc != 0 || model_claim_holds(&context->claim, folder)) {
        return rc;
    }
    rc = folder_claim(folder, &taken);
    if (rc == 0) {
        model_claim_drop(&context->claim);
        context->claim = taken;
    }
    return rc;
}

int tide_folder_claim(struct tide_context *context, const char *folder)
{
    const struct context_before before = context_enter(context);
    int rc = claim(context, folder);
    context_leave(&before);
    return rc;
}

void tide_folder_unclaim(struct tide_context *context)
{
    if (context != NULL) {
        model_claim_undo(&context->claim);
    }
}
