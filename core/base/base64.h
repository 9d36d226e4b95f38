/* base64.h: decodes base64. DeepSpeed accepts a configuration on the command line in this form. */
#ifndef CORE_BASE_BASE64_H
#define CORE_BASE_BASE64_H

#include <stddef.h>

/* Decodes `text`, which may use "-_" or "+/" and may end with '='. The caller frees the result,
 * which ends with a NUL. */
int core_base64_decode(const char *text, size_t bytes, char **out, size_t *out_bytes);

#endif
