/* spool.h: nameless files under TMPDIR (/var/tmp if unset or empty), which disappear when they are
 * closed, for data that is read more than once or at any byte. No state. */
#ifndef TOOLS_TEXT_DATA_SPOOL_H
#define TOOLS_TEXT_DATA_SPOOL_H

#include <stddef.h>
#include <stdint.h>

/* Returns the folder of temporary files. */
const char *text_spool_folder(void);
/* Creates a temporary file without a name in that folder; `what` names the data in messages. */
int text_spool_open(const char *what, int *fd);

/* Makes standard input readable more than once: sets *fd to a descriptor for
 * text_feed_options.input, which the caller closes, and *copied to the number of bytes copied. If
 * standard input is a file (`< FILE`), nothing is copied. */
int text_spool_input(int *fd, uint64_t *copied);

#endif
