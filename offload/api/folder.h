/* folder.h: claims the folder that an engine writes, and notes the engine's stores there. */
#ifndef OFFLOAD_API_FOLDER_H
#define OFFLOAD_API_FOLDER_H

#include <stdbool.h>

struct model_claim;
struct setup;
struct tide_context;

/* Returns -EINVAL if no folder is given. */
int folder_check(const char *folder);
/* Claims a folder, and removes a killed run's files from the stores that it noted there. */
int folder_claim(const char *folder, struct model_claim *claim);
/* Notes the run's store directories in the claimed folder, for a later run if this run is killed.
 * `claim` NULL: the context's claim. Does nothing without a claim; warns if the write fails. */
void folder_note_stores(const struct tide_context *context, const struct model_claim *claim,
                        const struct setup *setup);
/* Replaces `claim` by the context's claim on `folder`. Returns false if the context has no such
 * claim. */
bool folder_take_over(struct tide_context *context, const char *folder, struct model_claim *claim);

#endif
