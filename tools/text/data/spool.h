/* spool.h: nameless files under TMPDIR (/var/tmp if unset or empty), which disappear when closed.
 * No state. */
#ifndef TOOLS_TEXT_DATA_SPOOL_H
#define TOOLS_TEXT_DATA_SPOOL_H

#include <stddef.h>
#include <stdint.h>

const char *text_spool_folder(void);
/* `what` names the data in messages. */
int text_spool_open(const char *what, int *fd);

/* Makes standard input readable more than once. *fd is for text_feed_options.input; the caller
 * closes it. *copied is the number of bytes copied; 0 if standard input is a file. */
int text_spool_input(int *fd, uint64_t *copied);

#endif
