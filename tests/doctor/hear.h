/* hear.h: runs the doctor and keeps its findings as lines:
 *     warn cpu : text => cure {figure value}
 * The subject is between topic and colon. One thread. */
#ifndef TESTS_DOCTOR_HEAR_H
#define TESTS_DOCTOR_HEAR_H

#include <stddef.h>

#include "offload/doctor/doctor.h"

/* Returns a doctor for `root` ("": this machine) that measures briefly, and whose findings are
 * collected. */
struct doctor hear_alone(const char *root);
/* Returns the findings since hear_alone; valid until the next hear or hear_alone. */
const char *heard_text(void);

/* Returns the findings about a machine and a store (or NULL). `prepare` (or NULL) runs first, in a
 * child; a failure of `prepare` skips the case. */
const char *hear(const char *root, const char *store, int (*prepare)(void));

/* Makes a machine of files in the test's folder `name`, from pairs of path and text up to NULL.
 * Returns the machine's root, valid until the next call. */
const char *machine(const char *name, const char *const files[][2]);

/* Checks that a cure belongs to a finding that is not ok. */
void check_cures(const char *heard);

#endif
