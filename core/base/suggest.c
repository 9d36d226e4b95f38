/* suggest.c: optimal string alignment distance in three rows of its table. */
#include "core/base/suggest.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { WORD_MAX = 63 };

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

static int lower(char c)
{
    return c == '-' ? '_' : tolower((unsigned char)c);
}

unsigned core_suggest_distance(const char *left, const char *right)
{
    size_t rows = strnlen(left, WORD_MAX);
    size_t columns = strnlen(right, WORD_MAX);
    unsigned cost[3][WORD_MAX + 1];
    for (unsigned j = 0; j <= columns; j++) {
        cost[0][j] = j;
    }
    for (size_t i = 1; i <= rows; i++) {
        unsigned *now = cost[i % 3];
        const unsigned *before = cost[(i + 2) % 3];
        now[0] = (unsigned)i;
        for (size_t j = 1; j <= columns; j++) {
            bool same = lower(left[i - 1]) == lower(right[j - 1]);
            now[j] = least(before[j - 1] + !same, least(before[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && lower(left[i - 1]) == lower(right[j - 2]) &&
                lower(left[i - 2]) == lower(right[j - 1])) {
                now[j] = least(now[j], cost[(i + 1) % 3][j - 2] + 1);
            }
        }
    }
    return cost[rows % 3][columns];
}

void core_suggest_init(struct core_suggest *guess, const char *word)
{
    *guess = (struct core_suggest){.word = word,
                                   .distance = 1 + (unsigned)strnlen(word, WORD_MAX) / 3};
}

void core_suggest_offer(struct core_suggest *guess, const char *name)
{
    unsigned distance = core_suggest_distance(guess->word, name);
    if (distance < guess->distance || (distance == guess->distance && guess->best == NULL)) {
        guess->best = name;
        guess->distance = distance;
    }
}

const char *core_suggest_text(const struct core_suggest *guess)
{
    static _Thread_local char text[128];
    if (guess->best == NULL) {
        return "";
    }
    snprintf(text, sizeof text, " (did you mean %s?)", guess->best);
    return text;
}
