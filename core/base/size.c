/* size.c: parses sizes with integers, without rounding. */
#include "core/base/size.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"

static int refuse(const char *text)
{
    return core_err_set(
        -EINVAL, "invalid size \"%s\" (examples: 4096, 512K, 1M, 24GiB; 24GB is decimal)", text);
}

/* Returns 1 for "" and B, 1024 for K and KiB, 1000 for KB, and so on up to E; 0: unknown. */
static uint64_t unit_bytes(const char *unit)
{
    static const char letters[] = "KMGTPE";
    if (unit[0] == '\0' || strcmp(unit, "B") == 0) {
        return 1;
    }
    const char *found = strchr(letters, toupper((unsigned char)unit[0]));
    if (found == NULL || *found == '\0') {
        return 0;
    }
    const char *rest = unit + 1;
    uint64_t step = 0;
    if (rest[0] == '\0' || strcmp(rest, "iB") == 0 || strcmp(rest, "ib") == 0 ||
        strcmp(rest, "i") == 0) {
        step = 1024;
    } else if (strcmp(rest, "B") == 0 || strcmp(rest, "b") == 0) {
        step = 1000;
    } else {
        return 0;
    }
    uint64_t bytes = step;
    for (const char *letter = letters; letter < found; letter++) {
        bytes *= step;
    }
    return bytes;
}

int core_size_parse(const char *text, uint64_t *bytes)
{
    uint64_t digits = 0;
    uint64_t divisor = 1;
    size_t at = 0;
    bool pointed = false;
    for (; isdigit((unsigned char)text[at]) || (text[at] == '.' && !pointed); at++) {
        if (text[at] == '.') {
            pointed = true;
            continue;
        }
        if (__builtin_mul_overflow(digits, 10u, &digits) ||
            __builtin_add_overflow(digits, (uint64_t)(text[at] - '0'), &digits) ||
            (pointed && __builtin_mul_overflow(divisor, 10u, &divisor))) {
            return refuse(text);
        }
    }
    if (at == pointed || text[at - 1] == '.') {
        return refuse(text);
    }
    at += text[at] == ' ';
    uint64_t unit = unit_bytes(text + at);
    if (unit == 0) {
        return refuse(text);
    }
    uint64_t product;
    if (__builtin_mul_overflow(digits, unit, &product)) {
        return core_err_set(-EINVAL, "size \"%s\" does not fit into 64 bits", text);
    }
    if (product % divisor != 0) {
        return core_err_set(-EINVAL, "size \"%s\" is not a whole number of bytes", text);
    }
    *bytes = product / divisor;
    return 0;
}

const char *core_size_print(uint64_t bytes, char *out, size_t out_bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    unsigned unit = 0;
    double value = (double)bytes;
    while (value >= 1024 && unit < 6) {
        value /= 1024;
        unit++;
    }
    snprintf(out, out_bytes, "%.*f %s", unit == 0 ? 0 : 1, value, units[unit]);
    return out;
}
