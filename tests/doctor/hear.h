/* hear.h: runs the doctor and keeps what it says as text, a line a finding:
 *     warn cpu : text => cure {figure value}
 * with the subject between topic and colon. One thread. */
#ifndef TESTS_DOCTOR_HEAR_H
#define TESTS_DOCTOR_HEAR_H

#include <stddef.h>

#include "offload/doctor/doctor.h"

/* A doctor for `root` ("" for this machine) that is heard from now on and measures briefly. */
struct doctor hear_alone(const char *root);
/* What was heard since; valid until the next call of hear or hear_alone. */
const char *heard_text(void);

/* What the doctor says of a machine and of one store (NULL: none). With `prepare`, in a child that
 * has called it first; the case is skipped where it does not answer 0. */
const char *hear(const char *root, const char *store, int (*prepare)(void));

/* A machine made of files: `name` below the test's directory, with pairs of path and text up to
 * NULL. Returns its root, valid until the next call. */
const char *machine(const char *name, const char *const files[][2]);

/* Fails the case where a finding that is not ok has no cure, or one that is ok has one. */
void check_cures(const char *heard);

#endif
