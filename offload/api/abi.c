/* abi.c: the two copies by which structs cross the public border. No state. */
#include "offload/api/abi.h"

#include <errno.h>
#include <string.h>

#include "core/base/err.h"

/* More than any struct will ever have: an uninitialised size is caught. */
enum { STRUCT_BYTES_MAX = 1 << 16 };

static int read_bytes(const char *name, const void *at, size_t *out)
{
    if (at == NULL) {
        return core_err_set(-EINVAL, "struct %s is NULL", name);
    }
    size_t bytes;
    memcpy(&bytes, at, sizeof bytes);
    if (bytes < sizeof bytes || bytes > STRUCT_BYTES_MAX) {
        return core_err_set(-EINVAL,
                            "struct_bytes of struct %s is %zu; set it to the struct's sizeof", name,
                            bytes);
    }
    *out = bytes;
    return 0;
}

int abi_struct_read(const char *name, const void *from, void *to, size_t bytes)
{
    size_t given = 0;
    int rc = read_bytes(name, from, &given);
    if (rc != 0) {
        return rc;
    }
    const unsigned char *source = from;
    for (size_t i = bytes; i < given; i++) {
        if (source[i] != 0) {
            return core_err_set(-E2BIG,
                                "struct %s has %zu bytes and sets something at byte %zu; this "
                                "library, older than the program, knows %zu",
                                name, given, i, bytes);
        }
    }
    memset(to, 0, bytes);
    memcpy(to, from, given < bytes ? given : bytes);
    memcpy(to, &bytes, sizeof bytes);
    return 0;
}

int abi_struct_write(const char *name, const void *from, size_t bytes, void *to)
{
    size_t given = 0;
    int rc = read_bytes(name, to, &given);
    if (rc != 0) {
        return rc;
    }
    size_t common = given < bytes ? given : bytes;
    memcpy((unsigned char *)to + sizeof given, (const unsigned char *)from + sizeof given,
           common - sizeof given);
    return 0;
}

int abi_struct_check(const char *name, const void *to)
{
    size_t given = 0;
    return read_bytes(name, to, &given);
}
