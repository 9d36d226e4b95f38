/* utf8.c: checks one sequence at a time against the table of well-formed ranges. */
#include "core/base/utf8.h"

#include <string.h>

size_t core_utf8_sequence(const char *text, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)text;
    if (bytes == 0) {
        return 0;
    }
    unsigned first = at[0];
    if (first < 0x80) {
        return 1;
    }
    size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    if (first < 0xC2 || first > 0xF4 || bytes < length) {
        return 0;
    }
    /* excludes overlong forms, surrogates and code points above U+10FFFF */
    unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (at[1] < low || at[1] > high) {
        return 0;
    }
    for (size_t i = 2; i < length; i++) {
        if ((at[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    return length;
}

size_t core_utf8_count(const char *text, size_t bytes)
{
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++) {
        count += ((unsigned char)text[i] & 0xC0) != 0x80;
    }
    return count;
}

void core_utf8_mark_cut(char *text, size_t bytes)
{
    size_t at = bytes - 4;
    while (at > 0 && ((unsigned char)text[at] & 0xC0) == 0x80) {
        at--;
    }
    memcpy(text + at, "...", 4);
}
