/* sort.c: a stable sort of values by keys, by merging. */
#include <string.h>

#include "tools/text/jinja/value.h"

/* Merges from[begin, middle) and from[middle, end) into to. */
static void merge(struct jinja_run *run, const struct jinja_pair *from, struct jinja_pair *to,
                  const size_t bounds[3], bool reverse)
{
    size_t left = bounds[0];
    size_t right = bounds[1];
    for (size_t at = bounds[0]; at < bounds[2]; at++) {
        bool takes_left = right == bounds[2];
        if (left < bounds[1] && right < bounds[2]) {
            const int order = jinja_compare(run, from[left].key, from[right].key);
            takes_left = reverse ? order >= 0 : order <= 0;
        }
        to[at] = takes_left ? from[left++] : from[right++];
    }
}

struct jinja_pair *jinja_sorted(struct jinja_run *run, const struct jinja_pair *pairs, size_t count,
                                bool reverse)
{
    struct jinja_pair *from = jinja_alloc(run, (count + 1) * sizeof *from);
    struct jinja_pair *to = jinja_alloc(run, (count + 1) * sizeof *to);
    if (from == NULL || to == NULL) {
        return NULL;
    }
    if (count > 0) {
        memcpy(from, pairs, count * sizeof *from);
    }
    for (size_t width = 1; width < count && run->rc == 0; width *= 2) {
        for (size_t begin = 0; begin < count; begin += 2 * width) {
            const size_t middle = begin + width < count ? begin + width : count;
            const size_t end = middle + width < count ? middle + width : count;
            merge(run, from, to, (const size_t[3]){begin, middle, end}, reverse);
        }
        struct jinja_pair *swap = from;
        from = to;
        to = swap;
    }
    return run->rc == 0 ? from : NULL;
}
