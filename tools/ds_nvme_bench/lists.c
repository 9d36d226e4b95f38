/* lists.c: parses lists of numbers and sizes. */
#include "tools/ds_nvme_bench/lists.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/size.h"

static int take_number(const char *text, bool size, uint32_t low, uint32_t high, uint32_t *out)
{
    uint64_t value = 0;
    char *end = NULL;
    if (size) {
        if (core_size_parse(text, &value) != 0) {
            return -EINVAL;
        }
    } else {
        value = strtoull(text, &end, 10);
        if (end == text || *end != '\0' || text[0] == '-') {
            return core_err_set(-EINVAL, "\"%s\" is not a whole number", text);
        }
    }
    if (value < low || value > high || (size && value % 4096 != 0)) {
        return core_err_set(-EINVAL, "%s is not allowed; use %u to %u%s", text, low, high,
                            size ? " in multiples of 4096" : "");
    }
    *out = (uint32_t)value;
    return 0;
}

static void insert(uint32_t *list, unsigned *count, uint32_t number)
{
    unsigned at = *count;
    while (at > 0 && list[at - 1] >= number) {
        at--;
    }
    if (at < *count && list[at] == number) {
        return;
    }
    memmove(list + at + 1, list + at, (*count - at) * sizeof *list);
    list[at] = number;
    ++*count;
}

int bench_list_parse(const char *name, const char *text, bool size, uint32_t high, uint32_t *list,
                     unsigned *count)
{
    char copy[512];
    if (strlen(text) >= sizeof copy) {
        return core_err_set(-EINVAL, "--%s: the list is too long", name);
    }
    memcpy(copy, text, strlen(text) + 1);
    *count = 0;
    char *rest = NULL;
    unsigned items = 0;
    for (char *item = strtok_r(copy, ",", &rest); item != NULL; item = strtok_r(NULL, ",", &rest)) {
        if (items++ == BENCH_LIST_MAX) {
            return core_err_set(-EINVAL, "--%s takes at most %d values", name, BENCH_LIST_MAX);
        }
        uint32_t number = 0;
        if (take_number(item, size, size ? 4096 : 1, high, &number) != 0) {
            return core_err_prefix(-EINVAL, "--%s", name);
        }
        insert(list, count, number);
    }
    return *count > 0 ? 0 : core_err_set(-EINVAL, "--%s needs at least one value", name);
}
