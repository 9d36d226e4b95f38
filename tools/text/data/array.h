/* array.h: arrays that grow with what they have to hold. Any thread. */
#ifndef TOOLS_TEXT_DATA_ARRAY_H
#define TOOLS_TEXT_DATA_ARRAY_H

#include <stddef.h>

/* Room for `count` elements of `size` bytes in *(void **)array, which the caller owns; *room is how many
 * there is room for. -ENOMEM says what it was for, such as "a row"; nothing has changed then. */
int array_reserve(const char *what, void *array, size_t *room, size_t count, size_t size);

#endif
