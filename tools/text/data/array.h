/* array.h: growing arrays. Any thread. */
#ifndef TOOLS_TEXT_DATA_ARRAY_H
#define TOOLS_TEXT_DATA_ARRAY_H

#include <stddef.h>

/* Makes room for `count` elements of `size` bytes in *(void **)array, owned by the caller; *room is
 * the capacity. On -ENOMEM nothing changes; the message names `what` ("tokens of a row"). */
int array_reserve(const char *what, void *array, size_t *room, size_t count, size_t size);

#endif
