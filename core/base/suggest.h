/* suggest.h: finds the known name that is nearest to a mistyped one ("did you mean"). */
#ifndef CORE_BASE_SUGGEST_H
#define CORE_BASE_SUGGEST_H

struct core_suggest {
    const char *word; /* borrowed from the caller */
    const char *best; /* borrowed from the caller's names; NULL: no name is near */
    unsigned distance;
};

void core_suggest_init(struct core_suggest *guess, const char *word);
/* Keeps `name` if it is nearer than the names offered before, and near enough to be a likely
 * correction. */
void core_suggest_offer(struct core_suggest *guess, const char *name);
/* Returns " (did you mean NAME?)" or "". Valid until the next call on this thread. */
const char *core_suggest_text(const struct core_suggest *guess);

/* Returns the optimal string alignment distance of two words: the number of insertions, deletions,
 * changes and swaps of neighbours between them. Letter case does not count, nor does "-" against
 * "_"; only the first 63 bytes are compared. */
unsigned core_suggest_distance(const char *left, const char *right);

#endif
