/* claim.h: the right to write a folder. FOLDER.partial is made and locked, so that a second run
 * that wants to write FOLDER fails before its work. Its mark says that a run made the files; files
 * without a mark belong to another program. */
#ifndef OFFLOAD_MODEL_CLAIM_H
#define OFFLOAD_MODEL_CLAIM_H

#include <stdbool.h>

struct core_lock;

/* {NULL, -1}: no claim. */
struct model_claim {
    char *path;             /* owned: FOLDER.partial */
    int fd;                 /* owned: descriptor of FOLDER.partial */
    struct core_lock *lock; /* owned; NULL: another claim's, or the file system has no locks */
    char *noted;            /* owned: a killed run's note (model_claim_note); NULL: none */
    bool left;              /* this run leaves files in FOLDER.partial, so the mark stays */
};

/* Takes the claim on `folder`. Complete files in FOLDER.partial (publish.h) are first moved to
 * FOLDER; incomplete ones are removed. Returns -EBUSY if another claim exists; -EEXIST if
 * FOLDER.partial has files of another program; or an error of model_publish_resume(). */
int model_claim_take(const char *folder, struct model_claim *claim);
/* Writes a text into the mark: files elsewhere that must be removed. After a kill, the next claim
 * reads the text. */
int model_claim_note(const struct model_claim *claim, const char *text);
/* Returns whether this is a valid claim on `folder`, in any spelling. A claim ends when its folder
 * is published or removed. */
bool model_claim_holds(const struct model_claim *claim, const char *folder);
/* Removes the mark, unless this run leaves files, and then an empty folder. Keeps the claim. Signal
 * handlers may call this. */
void model_claim_undo(const struct model_claim *claim);
/* Gives the claim back; FOLDER.partial stays. */
void model_claim_close(struct model_claim *claim);
/* Calls model_claim_undo() and model_claim_close(). */
void model_claim_drop(struct model_claim *claim);

#endif
