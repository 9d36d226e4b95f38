/* manifest_seal.h: the checksum at the end of a manifest's text, which stays JSON. */
#ifndef OFFLOAD_STORE_MANIFEST_SEAL_H
#define OFFLOAD_STORE_MANIFEST_SEAL_H

#include <stddef.h>

#define STORE_MANIFEST_FORMAT "tide checkpoint"

/* `text` is an object and a newline. *out is the text with a last member "xxh3": XXH3-64 of
 * everything before that member's comma. The caller frees *out. */
int store_manifest_seal(const char *text, size_t bytes, char **out, size_t *out_bytes);
/* Returns -EBADMSG with a message if the text is not what was sealed. */
int store_manifest_unseal(const char *text, size_t bytes, const char *source);

#endif
