/* layout.h: fields and enumerators in two versions of the public headers. */
#ifndef TESTS_API_LAYOUT_H
#define TESTS_API_LAYOUT_H

#include <stddef.h>

struct layout_row {
    const char *name; /* "tide_step.loss" or "TIDE_BF16" */
    size_t value;     /* offset of a field, value of an enumerator */
    size_t bytes;     /* 0: an enumerator */
};

/* Both tables have equal names in equal order, and end with a NULL. */
extern const struct layout_row layout_recorded[];
extern const struct layout_row layout_current[];

#endif
