/* speculation.h: decides whether a step's update starts before its norm is known, because the norm
 * is expected neither to clip nor to skip it. Guesses begin after a few steps for which a guess
 * would have been right; after wrong guesses, more such steps are needed. If guessing proves
 * slower, guesses stop for a while. A norm far below the limit counts as two steps. Plain data; no
 * thread, no I/O. */
#ifndef OFFLOAD_RUN_SPECULATION_H
#define OFFLOAD_RUN_SPECULATION_H

#include <stdbool.h>
#include <stdint.h>

enum {
    RUN_SPECULATION_FIRST = 2, /* neutral steps before the first guess */
    /* most neutral steps that wrong guesses can require */
    RUN_SPECULATION_NEUTRAL_MAX = 64,
    RUN_SPECULATION_TRUST = 16, /* after this many right guesses, half as many neutral steps are
                                 * needed, and a deferred step is measured if none was */
    RUN_SPECULATION_PROBES = 2, /* most steps deferred to be measured; a call between two steps can
                                 * spoil a measurement */
    RUN_SPECULATION_PAUSE = 64  /* steps without a guess after guessing proved slower */
};

struct run_speculation {
    /* steps in a row for which a guess was or would have been right; `far` ones count twice */
    uint32_t neutral;
    uint32_t needed; /* neutral steps needed before a guess */
    uint32_t streak; /* right guesses since the last wrong one */
    uint32_t probes; /* steps deferred to be measured */
    uint32_t pause;  /* steps left without a guess */
    /* mean time of a step without a guess after another one; 0: unknown */
    double deferred_seconds;
    double speculative_seconds; /* the same for right guesses */
    double balance_seconds;     /* time gained less time lost; older steps count less */
    bool last_guessed;          /* the previous step guessed */
    bool last_wrong;            /* the previous step guessed wrong */
};

struct run_speculation_step {
    bool guessed;
    bool neutral; /* neither clipped nor skipped */
    bool far;     /* `neutral`, with less than half of the clipping limit */
    bool steady;  /* followed another step directly, and saved nothing */
    double seconds;
};

void run_speculation_init(struct run_speculation *policy);
/* Returns whether the next step guesses. */
bool run_speculation_next(const struct run_speculation *policy);
/* Records a step. Returns the seconds that wrong guesses are known to have cost in it. */
double run_speculation_note(struct run_speculation *policy,
                            const struct run_speculation_step *step);

#endif
