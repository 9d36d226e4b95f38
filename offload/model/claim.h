/* claim.h: the right to write a folder. FOLDER.partial is made and, if the file system has locks,
 * locked, so that a second run that wants to write FOLDER fails before its work. Its mark says that
 * a run made the files; files without a mark belong to another program. */
#ifndef OFFLOAD_MODEL_CLAIM_H
#define OFFLOAD_MODEL_CLAIM_H

#include <stdbool.h>

struct core_lock;

/* {NULL, -1}: no claim. */
struct model_claim {
    char *path;             /* owned: FOLDER.partial */
    int fd;                 /* owned: descriptor of FOLDER.partial */
    struct core_lock *lock; /* owned; NULL: another claim has it, or it could not be taken */
    char *noted;            /* owned: an earlier run's note (model_claim_note); NULL: none */
    bool left;              /* this run leaves files in FOLDER.partial, so the mark stays */
};

/* Takes the claim on `folder`. Complete files in FOLDER.partial (publish.h) are first moved to
 * FOLDER; incomplete ones are removed. Returns -EBUSY if another run has the claim; -EEXIST if
 * files in FOLDER.partial belong to another program, or would replace newer ones in FOLDER. */
int model_claim_take(const char *folder, struct model_claim *claim);
/* Writes a text into the mark: files elsewhere that must be removed. After a kill, the next claim
 * reads the text. */
int model_claim_note(const struct model_claim *claim, const char *text);
/* Returns whether this is a valid claim on `folder`, whose path may be spelled in another way. A
 * claim ends when its folder is published or removed. */
bool model_claim_holds(const struct model_claim *claim, const char *folder);
/* Removes the mark, unless this run leaves files, and then the folder if it is empty. Frees nothing
 * and closes nothing. Signal handlers may call this. */
void model_claim_undo(const struct model_claim *claim);
/* Gives the claim back; FOLDER.partial stays. */
void model_claim_close(struct model_claim *claim);
/* Calls model_claim_undo() and model_claim_close(). */
void model_claim_drop(struct model_claim *claim);

#endif
