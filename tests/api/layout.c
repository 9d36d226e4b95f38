/* layout.c: the table LAYOUT_NAME of recorded fields and enumerators. A renamed or removed field
 * does not compile with today's headers. */
#include "tests/api/layout.h"

#include <tide/blocks.h>
#include <tide/checkpoint.h>
#include <tide/doctor.h>
#include <tide/inspect.h>
#include <tide/optimizer.h>

#define FIELD(owner, field)                                                                        \
    {#owner "." #field, offsetof(struct owner, field), sizeof(((struct owner *)NULL)->field)},
#define VALUE(name) {#name, (size_t)(name), 0},
#define FUNCTION(name)

const struct layout_row LAYOUT_NAME[] = {
#include RECORDED_NAMES
    {NULL, 0, 0}};
