/* spool.h: nameless files under TMPDIR (/var/tmp where that is unset or empty), which nobody else sees and
 * which are gone when they are closed: for data that has to be read again or at any byte. No state. */
#ifndef TOOLS_TEXT_DATA_SPOOL_H
#define TOOLS_TEXT_DATA_SPOOL_H

#include <stddef.h>
#include <stdint.h>

/* The folder. */
const char *text_spool_folder(void);
/* `what` is what shall be kept there, in messages. */
int text_spool_open(const char *what, int *fd);

/* Standard input, to be read more than once: a descriptor to be closed, with which
 * text_feed_options.input reads it, and how many bytes were copied. A file in its place, as `< FILE`
 * has it, is not copied: 0. */
int text_spool_input(int *fd, uint64_t *copied);

#endif
