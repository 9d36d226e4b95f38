/* base64.c: decodes four characters to three bytes. */
#include "core/base/base64.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "core/base/err.h"

static int digit_of(char c)
{
    if (c >= 'A' && c <= 'Z') {
        return c - 'A';
    }
    if (c >= 'a' && c <= 'z') {
        return c - 'a' + 26;
    }
    if (c >= '0' && c <= '9') {
        return c - '0' + 52;
    }
    return c == '-' || c == '+' ? 62 : c == '_' || c == '/' ? 63 : -1;
}

int core_base64_decode(const char *text, size_t bytes, char **out, size_t *out_bytes)
{
    size_t padded = bytes;
    while (bytes > 0 && text[bytes - 1] == '=' && padded - bytes < 2) {
        bytes--;
    }
    if (bytes % 4 == 1 || (padded != bytes && padded % 4 != 0)) {
        return core_err_set(-EINVAL,
                            "base64 text of %zu characters is cut off: its last group has %zu of 4",
                            padded, padded % 4);
    }
    char *plain = malloc(bytes / 4 * 3 + 4);
    if (plain == NULL) {
        return core_err_set(-ENOMEM, "no memory to decode %zu characters of base64", bytes);
    }
    size_t used = 0;
    uint32_t bits = 0;
    unsigned filled = 0;
    for (size_t i = 0; i < bytes; i++) {
        int digit = digit_of(text[i]);
        if (digit < 0) {
            free(plain);
            return core_err_set(-EINVAL,
                                "character %zu of the base64 text (0x%02x) is not in its alphabet; "
                                "allowed: A-Z a-z 0-9 - _ (or + /), and = at its end",
                                i + 1, (unsigned char)text[i]);
        }
        bits = bits << 6 | (uint32_t)digit;
        filled += 6;
        if (filled >= 8) {
            filled -= 8;
            plain[used++] = (char)(bits >> filled & 0xFF);
        }
    }
    plain[used] = '\0';
    *out = plain;
    *out_bytes = used;
    return 0;
}
