/* checkpoint_remove.h: removes a checkpoint's own files and leaves all others. The manifest says
 * which files are its own. It is first renamed to the mark STORE_REMOVED_NAME: from then on the
 * folder is not a checkpoint, and any later run that finds the mark may continue the removal. */
#ifndef OFFLOAD_STORE_CHECKPOINT_REMOVE_H
#define OFFLOAD_STORE_CHECKPOINT_REMOVE_H

#include <stdbool.h>

/* A manifest under another name, in a folder that is being removed or overwritten. */
#define STORE_REMOVED_NAME ".tide-removed"

/* Returns whether the folder `path` has a manifest.json that tide wrote, even if it is damaged. */
bool store_checkpoint_is_ours(const char *path);
/* Returns whether the folder has the mark and no manifest. */
bool store_checkpoint_is_marked(const char *path);

/* Renames the manifest to the mark, durably. Sets *foreign to whether the folder has entries that
 * are not the checkpoint's. */
int store_checkpoint_mark(const char *path, bool *foreign);
/* Removes the files of a folder with the mark, the mark last, and then the folder if it is empty.
 * Logs a warning if a file cannot be removed, and a line if the folder stays because of other
 * files. */
void store_checkpoint_remove(const char *path);

#endif
