/* stripe.c: largest credit first. */
#include "aio/stripe.h"

#include <assert.h>

static void earn(const double *weights, double *credit, const uint64_t *free_units, unsigned count,
                 uint64_t units)
{
    double sum = 0;
    for (unsigned i = 0; i < count; i++) {
        sum += free_units[i] > 0 ? weights[i] : 0;
    }
    for (unsigned i = 0; i < count; i++) {
        if (free_units[i] > 0) {
            credit[i] += sum > 0 ? (double)units * weights[i] / sum : (double)units / count;
        }
    }
}

static unsigned richest(const double *credit, const uint64_t *free_units, const uint64_t *taken,
                        unsigned count)
{
    unsigned best = count;
    for (unsigned i = 0; i < count; i++) {
        if (taken[i] < free_units[i] && (best == count || credit[i] > credit[best])) {
            best = i;
        }
    }
    return best;
}

void aio_stripe_share(const double *weights, double *credit, const uint64_t *free_units,
                      unsigned count, uint64_t units, uint64_t *out)
{
    uint64_t left = units;
    earn(weights, credit, free_units, count, units);
    for (unsigned i = 0; i < count; i++) {
        uint64_t whole = credit[i] >= 1 ? (uint64_t)credit[i] : 0;
        whole = whole < free_units[i] ? whole : free_units[i];
        out[i] = whole < left ? whole : left;
        credit[i] -= (double)out[i];
        left -= out[i];
    }
    while (left > 0) {
        unsigned best = richest(credit, free_units, out, count);
        assert(best < count);
        /* All that this path still takes, where it is the last one; else one unit. */
        out[best]++;
        credit[best] -= 1;
        left--;
    }
}
