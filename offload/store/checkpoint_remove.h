/* checkpoint_remove.h: removes a checkpoint's own files, and no others. The manifest is first
 * renamed to the mark: the folder is then no checkpoint, and a later run may continue the
 * removal. */
#ifndef OFFLOAD_STORE_CHECKPOINT_REMOVE_H
#define OFFLOAD_STORE_CHECKPOINT_REMOVE_H

#include <stdbool.h>

/* A manifest under another name, in a folder that is being removed or overwritten. */
#define STORE_REMOVED_NAME ".tide-removed"

/* Returns whether the folder `path` has a manifest.json that tide wrote, even if it is damaged. */
bool store_checkpoint_is_ours(const char *path);
/* Returns whether the folder has the mark and no manifest. */
bool store_checkpoint_is_marked(const char *path);

/* Renames the manifest to the mark, durably. *foreign: the folder has other entries. */
int store_checkpoint_mark(const char *path, bool *foreign);
/* Removes the files of a marked folder, the mark last, and the folder if empty. Logs a warning if a
 * removal fails, and a line if other files remain. */
void store_checkpoint_remove(const char *path);

#endif
