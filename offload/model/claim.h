/* claim.h: the right to write a folder. FOLDER.partial is made and locked, so that of two who are to
 * write FOLDER the second one is told so, and before its work and not after. A mark in it says that what
 * else is in it is a run's: a folder of that name that has none, and is not empty, is somebody's own. */
#ifndef OFFLOAD_MODEL_CLAIM_H
#define OFFLOAD_MODEL_CLAIM_H

#include <stdbool.h>

/* {NULL, -1}: nothing is claimed. */
struct model_claim {
    char *path;  /* owned: FOLDER.partial */
    int fd;      /* of it, locked */
    char *noted; /* owned: the note of a run that was killed (model_claim_note); NULL: none */
};

/* A FOLDER.partial whose files are complete (publish.h) gets its name first; other files that a run left in
 * it are removed. -EBUSY where another process has it, -EEXIST where no run left
 * what is in it. */
int model_claim_take(const char *folder, struct model_claim *claim);
/* Keeps a text in the mark, for the run that takes the claim after this one was killed: what this run has
 * elsewhere that somebody has to remove. */
int model_claim_note(const struct model_claim *claim, const char *text);
/* Whether it is a claim on `folder`, however that is spelled, that still holds: one that was published, or
 * whose folder was removed, does not. */
bool model_claim_holds(const struct model_claim *claim, const char *folder);
/* Takes away what stands for it, as far as nothing was written into it; to be dropped all the same. A
 * signal's handler may call it. */
void model_claim_undo(const struct model_claim *claim);
/* Gives it back; the folder goes where nothing was written into it. */
void model_claim_drop(struct model_claim *claim);

#endif
