/* suggest.h: finds the known name that is nearest to a mistyped one ("did you mean"). */
#ifndef CORE_BASE_SUGGEST_H
#define CORE_BASE_SUGGEST_H

struct core_suggest {
    const char *word; /* borrowed from the caller */
    const char *best; /* borrowed from the caller's names; NULL: none */
    unsigned distance;
};

void core_suggest_init(struct core_suggest *guess, const char *word);
/* Keeps `name` if it is the nearest so far, and near enough for a typing error. */
void core_suggest_offer(struct core_suggest *guess, const char *name);
/* Returns " (did you mean NAME?)" or "". Valid until the next call on this thread. */
const char *core_suggest_text(const struct core_suggest *guess);

/* Returns how many insertions, deletions, changes and swaps of neighbours two words differ by.
 * Letter case, and "-" against "_", do not count. Compares the first 63 bytes. */
unsigned core_suggest_distance(const char *left, const char *right);

#endif
