/* heard.h: captures log messages of the listening thread and of threads that tide starts from this
 * thread. For programs that link core/base. */
#ifndef TESTS_HARNESS_HEARD_H
#define TESTS_HARNESS_HEARD_H

#include "core/base/log.h"

/* Drops earlier lines, and captures later ones of this level or more severe. */
void test_listen(enum core_log_level level);
/* Stops capturing on this thread; the captured lines stay. */
void test_listen_end(void);

/* Returns the lines, each ending with a newline: a static text of at most 64 KiB, which grows while
 * threads log; later lines are dropped. test_listen() empties it. */
const char *test_heard(void);
/* Returns the number of lines that contain `part`; "" counts all lines. */
unsigned test_heard_lines(const char *part);

#endif
