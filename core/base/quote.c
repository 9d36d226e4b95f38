/* quote.c: quotes byte by byte. */
#include "core/base/quote.h"

#include <stddef.h>
#include <string.h>

const char *core_quote(const char *text, char out[CORE_QUOTE_BYTES])
{
    static const char inner[] = "'\\''"; /* closes the quotes, adds a quote, opens them */
    size_t used = 0;
    out[used++] = '\'';
    if (text[0] == '-') {
        memcpy(out + used, "./", 2);
        used += 2;
    }
    for (; *text != '\0'; text++) {
        size_t bytes = *text == '\'' ? sizeof inner - 1 : 1;
        if (used + bytes + 2 > CORE_QUOTE_BYTES) {
            return memcpy(out, "'...'", sizeof "'...'");
        }
        memcpy(out + used, *text == '\'' ? inner : text, bytes);
        used += bytes;
    }
    memcpy(out + used, "'", 2);
    return out;
}
