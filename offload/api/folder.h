/* folder.h: claims on the folder that an engine writes, and notes about its stores in it. */
#ifndef OFFLOAD_API_FOLDER_H
#define OFFLOAD_API_FOLDER_H

#include <stdbool.h>

struct model_claim;
struct setup;
struct tide_context;

/* Returns -EINVAL if no folder is given. */
int folder_check(const char *folder);
/* Takes the claim on a folder, and removes the stores of the run that was killed with it. */
int folder_claim(const char *folder, struct model_claim *claim);
/* Writes the directories of a run's store into the folder, so that a later run finds them if this one is
 * killed. `claim` NULL: the context's. Does nothing without a folder; a failed write is a warning. */
void folder_note_stores(const struct tide_context *context, const struct model_claim *claim,
                        const struct setup *setup);
/* If the context holds a claim on `folder`, drops `claim` and moves that claim into it. */
bool folder_take_over(struct tide_context *context, const char *folder, struct model_claim *claim);

#endif
