/* manifest_seal.h: the sum at the end of a manifest's text, which stays JSON: private to manifest*.c. */
#ifndef OFFLOAD_STORE_MANIFEST_SEAL_H
#define OFFLOAD_STORE_MANIFEST_SEAL_H

#include <stddef.h>

#define STORE_MANIFEST_FORMAT "tide checkpoint"

/* `text` is an object and a line's end; `out` is the same with the member "xxh3" at its end: XXH3-64
 * of everything in front of that member's comma. The caller's to free. */
int store_manifest_seal(const char *text, size_t bytes, char **out, size_t *out_bytes);
/* -EBADMSG with a sentence where the text is not what was sealed. */
int store_manifest_unseal(const char *text, size_t bytes, const char *source);

#endif
