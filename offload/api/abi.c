/* abi.c: copies structs between the library and programs of other versions. No state. */
#include "offload/api/abi.h"

#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "offload/api/build.h"

/* A larger size is probably an uninitialised one. */
enum { STRUCT_BYTES_MAX = 4096 };

/* Fields come in groups of 8 bytes. */
enum { STRUCT_GRAIN_BYTES = 8 };

static int check_bytes(const char *name, const void *at, size_t bytes)
{
    if (at == NULL) {
        return core_err_set(-EINVAL, "struct %s is NULL", name);
    }
    if (bytes < STRUCT_GRAIN_BYTES || bytes > STRUCT_BYTES_MAX || bytes % STRUCT_GRAIN_BYTES != 0) {
        return core_err_set(-EINVAL,
                            "struct_bytes of struct %s is %zu; set it to the struct's sizeof", name,
                            bytes);
    }
    return 0;
}

static int read_bytes(const char *name, const void *at, size_t *out)
{
    size_t bytes = 0;
    if (at != NULL) {
        memcpy(&bytes, at, sizeof bytes);
    }
    int rc = check_bytes(name, at, bytes);
    *out = bytes;
    return rc;
}

int abi_struct_init(const char *name, const void *defaults, size_t bytes, void *to, size_t given)
{
    int rc = check_bytes(name, to, given);
    if (rc != 0) {
        return rc;
    }
    memset(to, 0, given);
    memcpy(to, defaults, given < bytes ? given : bytes);
    memcpy(to, &given, sizeof given);
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
                                "struct %s has %zu bytes and is not zero at byte %zu; this "
                                "library, %s, is older than the program and knows only the first "
                                "%zu bytes; that option needs a newer library",
                                name, given, i, api_build_version, bytes);
        }
    }
    memset(to, 0, bytes);
    memcpy(to, from, given < bytes ? given : bytes);
    memcpy(to, &bytes, sizeof bytes);
    return 0;
}

int abi_struct_read_at(const char *name, const void *array, size_t index, void *to, size_t bytes)
{
    size_t stride = 0;
    size_t given = 0;
    int rc = read_bytes(name, array, &stride);
    if (rc != 0) {
        return rc;
    }
    const unsigned char *from = (const unsigned char *)array + index * stride;
    rc = read_bytes(name, from, &given);
    if (rc == 0 && given != stride) {
        rc = core_err_set(-EINVAL,
                          "struct_bytes of struct %s is %zu in element 0 and %zu in element %zu of "
                          "one array",
                          name, stride, given, index);
    }
    return rc == 0 ? abi_struct_read(name, from, to, bytes) : rc;
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
    memset((unsigned char *)to + common, 0, given - common);
    return 0;
}

int abi_struct_check(const char *name, const void *to)
{
    size_t given = 0;
    return read_bytes(name, to, &given);
}

int abi_pointer_check(const char *name, const void *pointer)
{
    return pointer != NULL ? 0 : core_err_set(-EINVAL, "%s is NULL", name);
}
