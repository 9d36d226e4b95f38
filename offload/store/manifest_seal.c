/* manifest_seal.c: adds a checksum of fixed size at the end, and verifies that checksum. */
#include "offload/store/manifest_seal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/hash.h"

static const char seal_format[] = ",\n \"xxh3\": \"%016" PRIx64 "\"\n}\n";
enum { SEAL_BYTES = 32, TAIL_BYTES = 3 }; /* the tail is "\n}\n" */

int store_manifest_seal(const char *text, size_t bytes, char **out, size_t *out_bytes)
{
    const size_t body = bytes - TAIL_BYTES;
    char *sealed = malloc(body + SEAL_BYTES + 1);
    if (sealed == NULL) {
        return core_err_set(-ENOMEM, "no memory for a manifest of %zu bytes", bytes);
    }
    memcpy(sealed, text, body);
    const int length = snprintf(sealed + body, SEAL_BYTES + 1, seal_format,
                                core_hash(text, body, 0));
    *out_bytes = body + (size_t)length;
    *out = sealed;
    return 0;
}

int store_manifest_unseal(const char *text, size_t bytes, const char *source)
{
    char seal[SEAL_BYTES + 1];
    if (bytes < SEAL_BYTES) {
        return core_err_set(-EBADMSG, "%s is truncated: it has %zu bytes", source, bytes);
    }
    const size_t body = bytes - SEAL_BYTES;
    snprintf(seal, sizeof seal, seal_format, core_hash(text, body, 0));
    if (memcmp(seal, text + body, SEAL_BYTES) != 0) {
        return core_err_set(
            -EBADMSG, "%s is damaged or truncated: its text does not match the checksum at its end",
            source);
    }
    return 0;
}
