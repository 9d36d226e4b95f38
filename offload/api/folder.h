/* folder.h: claims the folder that an engine writes, and keeps notes about the engine's stores in
 * that folder. */
#ifndef OFFLOAD_API_FOLDER_H
#define OFFLOAD_API_FOLDER_H

#include <stdbool.h>

struct model_claim;
struct setup;
struct tide_context;

/* Returns -EINVAL if no folder is given. */
int folder_check(const char *folder);
/* Takes the claim on a folder. Removes the stores of a killed run that had the folder before. */
int folder_claim(const char *folder, struct model_claim *claim);
/* Notes the directories of a run's stores in the claimed folder, so that a later run finds them if
 * this one is killed. `claim` NULL: the context's claim. Does nothing without a claim; a failed
 * write causes a warning. */
void folder_note_stores(const struct tide_context *context, const struct model_claim *claim,
                        const struct setup *setup);
/* If the context holds a claim on `folder`, drops `claim`, moves the context's claim into it and
 * returns true; otherwise returns false. */
bool folder_take_over(struct tide_context *context, const char *folder, struct model_claim *claim);

#endif
