/* folder.h: what an engine asks about the folder that it is to write. */
#ifndef OFFLOAD_API_FOLDER_H
#define OFFLOAD_API_FOLDER_H

#include <stdbool.h>

struct model_claim;
struct tide_context;

/* -EINVAL where none is given. */
int folder_check(const char *folder);
/* Makes the context's claim, where it holds `folder`, `claim`, which is dropped before. */
bool folder_take_over(struct tide_context *context, const char *folder, struct model_claim *claim);

#endif
