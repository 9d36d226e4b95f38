/* guess.h: "did you mean": the nearest of the names offered to a mistyped word. */
#ifndef CORE_BASE_GUESS_H
#define CORE_BASE_GUESS_H

struct core_guess {
    const char *word; /* borrowed from the caller */
    const char *best; /* borrowed from the caller's names; NULL: nothing is near */
    unsigned distance;
};

void core_guess_init(struct core_guess *guess, const char *word);
/* Keeps `name` where it is nearer than what was offered before, and near enough to be meant. */
void core_guess_offer(struct core_guess *guess, const char *name);
/* " (did you mean NAME?)" or "". Valid until the next call on this thread. */
const char *core_guess_text(const struct core_guess *guess);

/* Insertions, deletions, changes and swaps of neighbours between two words, letter case aside; of
 * words longer than 63 bytes the rest is not looked at. */
unsigned core_guess_distance(const char *left, const char *right);

#endif
