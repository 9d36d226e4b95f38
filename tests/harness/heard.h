/* heard.h: captures log messages while a case listens. The sink is bound to the thread that
 * listens; threads that tide starts from it inherit the sink, and all may log at once. For programs
 * that link core/base. */
#ifndef TESTS_HARNESS_HEARD_H
#define TESTS_HARNESS_HEARD_H

#include "core/base/log.h"

/* Drops earlier lines, and captures lines of this level and of more severe ones from now on. */
void test_listen(enum core_log_level level);
/* Stops capturing; the captured lines stay. */
void test_listen_end(void);

/* Returns the lines, each with its newline. Valid until the program ends; grows while threads
 * log. */
const char *test_heard(void);
/* Returns the number of lines that contain `part`; "": the number of all lines. */
unsigned test_heard_lines(const char *part);

#endif
