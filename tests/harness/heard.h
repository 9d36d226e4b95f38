/* heard.h: what the log said while a case listened. The sink is bound to the thread that listens; threads
 * that tide starts under it inherit it, and may all talk at once. For programs that link core/base. */
#ifndef TESTS_HARNESS_HEARD_H
#define TESTS_HARNESS_HEARD_H

#include "core/base/log.h"

/* Forgets what was heard and keeps lines of this level and of those above it. */
void test_listen(enum core_log_level level);
/* No more is heard; what was stays. */
void test_listen_end(void);

/* The lines, each with its newline; valid until the program ends, and grows while threads talk. */
const char *test_heard(void);
/* How many of them contain a text; "": how many there are. */
unsigned test_heard_lines(const char *part);

#endif
