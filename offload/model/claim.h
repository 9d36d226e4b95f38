/* claim.h: the right to write a folder. FOLDER.partial is made and locked, so that the second of
 * two runs that want to write FOLDER fails before its work and not after. A mark in FOLDER.partial
 * says that a run made the files beside it; a folder of that name that has files and no mark
 * belongs to another program. */
#ifndef OFFLOAD_MODEL_CLAIM_H
#define OFFLOAD_MODEL_CLAIM_H

#include <stdbool.h>

struct core_lock;

/* {NULL, -1}: no claim. */
struct model_claim {
    char *path;             /* owned: FOLDER.partial */
    int fd;                 /* owned: descriptor of FOLDER.partial */
    struct core_lock *lock; /* owned; NULL: another claim has it, or the file system has no locks */
    char *noted; /* owned: the note of a run that was killed (model_claim_note); NULL: none */
    bool left;   /* this run leaves files in FOLDER.partial, so their mark stays with them */
};

/* Takes the claim on `folder`. If the files in FOLDER.partial are complete (publish.h), they are
 * moved to FOLDER first; incomplete files of an earlier run are removed. Returns -EBUSY if another
 * claim on `folder` exists; -EEXIST if FOLDER.partial has files of another program; or an error of
 * model_publish_resume(). */
int model_claim_take(const char *folder, struct model_claim *claim);
/* Writes a text into the mark: the files that this run has elsewhere and that must be removed. If
 * this run is killed, the next run that takes the claim reads the text. */
int model_claim_note(const struct model_claim *claim, const char *text);
/* Returns whether this is a valid claim on `folder`, however the path is spelled. A claim ends when
 * its folder is published or removed. */
bool model_claim_holds(const struct model_claim *claim, const char *folder);
/* Removes the mark, unless this run leaves files in FOLDER.partial, and then the folder if it is
 * empty. Does not give the claim back. Signal handlers may call this. */
void model_claim_undo(const struct model_claim *claim);
/* Gives the claim back; FOLDER.partial stays. */
void model_claim_close(struct model_claim *claim);
/* model_claim_undo() and then model_claim_close(). */
void model_claim_drop(struct model_claim *claim);

#endif
