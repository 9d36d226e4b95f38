/* base64.h: decodes base64. DeepSpeed accepts a configuration on the command line in this form. */
#ifndef CORE_BASE_BASE64_H
#define CORE_BASE_BASE64_H

#include <stddef.h>

/* Decodes `text` in either alphabet ('-' and '_', or '+' and '/'), with or without '=' at its end.
 * The caller frees the result, which ends with a NUL. Returns -EINVAL with a message that names the
 * position of the wrong character or says that the text is cut off, or -ENOMEM. */
int core_base64_decode(const char *text, size_t bytes, char **out, size_t *out_bytes);

#endif
