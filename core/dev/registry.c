/* registry.c: the kinds of device of this build, and opening by name. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/dev/backend.h"

struct kind {
    const char *name;
    const struct dev_backend *backend; /* NULL: not built in */
    const char *absent;                /* the reason and the remedy */
};

static const struct kind kinds[] = {
    {"cpu", &dev_backend_cpu, NULL},
#if HAVE_CUDA
    {"cuda", &dev_backend_cuda, NULL},
#else
    {"cuda", NULL,
     DEV_CUDA_STATE "; install the CUDA 13 toolkit and build again with -Dcuda=enabled"},
#endif
};
enum { KIND_COUNT = sizeof kinds / sizeof kinds[0], NUMBER_MAX = 1023, NAMED_MAX = 64 };

const char *dev_kind_name(unsigned index)
{
    return index < KIND_COUNT ? kinds[index].name : NULL;
}

bool dev_kind_built(unsigned index)
{
    return index < KIND_COUNT && kinds[index].backend != NULL;
}

bool dev_is_cpu(const char *name)
{
    return strcspn(name, ":") == strlen("cpu") && strncmp(name, "cpu", strlen("cpu")) == 0;
}

int dev_kind_count(unsigned index)
{
    if (index >= KIND_COUNT) {
        return core_err_set(-EINVAL, "unknown device kind %u; there are %d kinds", index,
                            KIND_COUNT);
    }
    const struct kind *kind = &kinds[index];
    if (kind->backend == NULL) {
        return core_err_set(-ENOTSUP, "this build has no device %s: %s", kind->name, kind->absent);
    }
    return kind->backend->count();
}

/* Sets *end after the number. Returns false without a number up to NUMBER_MAX. */
static bool parse_number(const char *text, const char **end, unsigned *out)
{
    char *after = NULL;
    const unsigned long value = strtoul(text, &after, 10);
    if (text[0] < '0' || text[0] > '9' || value > NUMBER_MAX || (*after != '\0' && *after != ',')) {
        return false;
    }
    *end = after;
    *out = (unsigned)value;
    return true;
}

struct named {
    unsigned kind;               /* index in `kinds` */
    unsigned count;              /* listed devices; 0: any of the kind */
    unsigned numbers[NAMED_MAX]; /* [count], all different */
};

/* Splits "cuda:1,3". Returns 0, or -EINVAL with a message. */
static int parse_name(const char *name, struct named *out)
{
    const char *at = strchr(name, ':');
    const size_t length = at != NULL ? (size_t)(at - name) : strlen(name);
    *out = (struct named){.count = 0};
    while (at != NULL && *at != '\0') {
        unsigned number = 0;
        if (!parse_number(at + 1, &at, &number) || out->count == NAMED_MAX) {
            return core_err_set(-EINVAL,
                                "expected a number from 0 to %d after ':' in device \"%s\", or up "
                                "to %d numbers with commas between them",
                                NUMBER_MAX, name, NAMED_MAX);
        }
        for (unsigned i = 0; i < out->count; i++) {
            if (out->numbers[i] == number) {
                return core_err_set(-EINVAL, "device %u is listed twice in \"%s\"", number, name);
            }
        }
        out->numbers[out->count++] = number;
    }
    for (unsigned i = 0; i < KIND_COUNT; i++) {
        if (strlen(kinds[i].name) == length && strncmp(kinds[i].name, name, length) == 0) {
            out->kind = i;
            return 0;
        }
    }
    return core_err_set(-EINVAL, "unknown device \"%s\" (expected cpu, cuda, cuda:N or cuda:N,M)",
                        name);
}

static int fail_number(const char *kind, unsigned number, int count)
{
    return core_err_set(-ENODEV, "device %s:%u does not exist: this machine has %d of that kind",
                        kind, number, count);
}

int dev_name_of_rank(const char *name, unsigned index, unsigned ranks, char out[DEV_NAME_BYTES])
{
    struct named named;
    int rc = parse_name(name, &named);
    if (rc != 0) {
        return rc;
    }
    const char *kind = kinds[named.kind].name;
    snprintf(out, DEV_NAME_BYTES, "%s", kind);
    if (kinds[named.kind].backend == &dev_backend_cpu) {
        return 0;
    }
    if (named.count > 0 && named.count != ranks) {
        return core_err_set(
            -EINVAL,
            "device \"%s\" lists %u card%s for %u rank%s of this machine; each rank "
            "needs a card of its own: --ranks %u, or \"%s\" for all cards",
            name, named.count, named.count == 1 ? "" : "s", ranks, ranks == 1 ? "" : "s",
            named.count, kind);
    }
    const int count = dev_kind_count(named.kind);
    if (count < 0) {
        return count;
    }
    if (ranks > (unsigned)count) {
        return core_err_set(-EINVAL,
                            "%u ranks on this machine need a card each; it has %d (--ranks %d)",
                            ranks, count, count);
    }
    for (unsigned i = 0; i < named.count; i++) {
        if (named.numbers[i] >= (unsigned)count) {
            return fail_number(kind, named.numbers[i], count);
        }
    }
    snprintf(out, DEV_NAME_BYTES, "%s:%u", kind, named.count > 0 ? named.numbers[index] : index);
    return 0;
}

int dev_open(const char *name, const struct dev_options *options, struct dev_device **out)
{
    static const struct dev_options defaults = {0};
    struct named named;
    int rc = parse_name(name, &named);
    if (rc != 0) {
        return rc;
    }
    const unsigned kind = named.kind;
    const unsigned number = named.numbers[0];
    int count = dev_kind_count(kind);
    if (count < 0) {
        return count;
    }
    if (number >= (unsigned)count) {
        return fail_number(kinds[kind].name, number, count);
    }
    return kinds[kind].backend->open(number, options != NULL ? options : &defaults, out);
}
