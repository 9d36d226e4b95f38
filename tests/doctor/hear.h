/* hear.h: runs the doctor and keeps its findings as text, one line per finding:
 *     warn cpu : text => cure {figure value}
 * The subject is between topic and colon. One thread. */
#ifndef TESTS_DOCTOR_HEAR_H
#define TESTS_DOCTOR_HEAR_H

#include <stddef.h>

#include "offload/doctor/doctor.h"

/* Returns a doctor for `root` ("" for this machine) that measures briefly and whose findings are
 * collected from now on. */
struct doctor hear_alone(const char *root);
/* Returns the findings since hear_alone; valid until the next call of hear or hear_alone. */
const char *heard_text(void);

/* Returns the findings about a machine and a store (NULL: no store). With `prepare`, runs in a
 * child that calls `prepare` first; skips the case if `prepare` does not return 0. */
const char *hear(const char *root, const char *store, int (*prepare)(void));

/* Makes a machine of files in the folder `name` of the test, from pairs of path and text up to
 * NULL. Returns its root, valid until the next call. */
const char *machine(const char *name, const char *const files[][2]);

/* Fails the case if a finding that is not ok has no cure, or one that is ok has one. */
void check_cures(const char *heard);

#endif
