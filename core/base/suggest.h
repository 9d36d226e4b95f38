/* suggest.h: "did you mean": the nearest of the names offered to a mistyped word. */
#ifndef CORE_BASE_SUGGEST_H
#define CORE_BASE_SUGGEST_H

struct core_suggest {
    const char *word; /* borrowed from the caller */
    const char *best; /* borrowed from the caller's names; NULL: nothing is near */
    unsigned distance;
};

void core_suggest_init(struct core_suggest *guess, const char *word);
/* Keeps `name` where it is nearer than what was offered before, and near enough to be meant. */
void core_suggest_offer(struct core_suggest *guess, const char *name);
/* " (did you mean NAME?)" or "". Valid until the next call on this thread. */
const char *core_suggest_text(const struct core_suggest *guess);

/* Insertions, deletions, changes and swaps of neighbours between two words, letter case aside; of
 * words longer than 63 bytes the rest is not looked at. */
unsigned core_suggest_distance(const char *left, const char *right);

#endif
