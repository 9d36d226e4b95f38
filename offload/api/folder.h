/* folder.h: what an engine asks about the folder that it is to write. */
#ifndef OFFLOAD_API_FOLDER_H
#define OFFLOAD_API_FOLDER_H

#include <stdbool.h>

struct model_claim;
struct setup;
struct tide_context;

/* -EINVAL where none is given. */
int folder_check(const char *folder);
/* Takes the claim on a folder, and removes the stores of the run that was killed with it. */
int folder_claim(const char *folder, struct model_claim *claim);
/* Notes the directories in which a run is to have its store, so that they are found if it is killed.
 * `claim` NULL: the context's. A claim on nothing is fine; what cannot be noted is a warning. */
void folder_note_stores(const struct tide_context *context, const struct model_claim *claim,
                        const struct setup *setup);
/* Makes the context's claim, where it holds `folder`, `claim`, which is dropped before. */
bool folder_take_over(struct tide_context *context, const char *folder, struct model_claim *claim);

#endif
