/* guess.h: whether a step's update starts before its norm is known, on the guess that the norm will
 * neither clip nor skip it. Guessed only behind steps that a guess would have been right for, the more
 * of them the more often guesses were wrong of late, and only while measured time speaks for it. A norm
 * that stayed far below the limit speaks for two steps. Pure; a value. */
#ifndef OFFLOAD_RUN_GUESS_H
#define OFFLOAD_RUN_GUESS_H

#include <stdbool.h>
#include <stdint.h>

/* Calm steps before the first guess; the most that wrong guesses can ask for; right guesses that halve
 * what is asked for, and after which a deferred step is measured where none was yet; steps that wait
 * for such a measure, where others lie between steps; steps without a guess once guessing did not
 * pay. */
enum {
    RUN_GUESS_FIRST = 2,
    RUN_GUESS_CALM_MAX = 64,
    RUN_GUESS_TRUST = 16,
    RUN_GUESS_LOOKS = 2,
    RUN_GUESS_REST = 64
};

struct run_guess {
    uint32_t calm;   /* steps in a row that a guess was or would have been right for; far: two */
    uint32_t needed; /* of them before a guess */
    uint32_t streak; /* right guesses since the last wrong one */
    uint32_t looks;  /* deferred steps that were made to be measured */
    uint32_t rest;   /* steps left without a guess */
    double
        deferred;   /* seconds of a step that guesses nothing behind one that did not; 0: unknown */
    double ahead;   /* of a right guess behind a right guess; 0: unknown */
    double balance; /* seconds won less seconds lost, the older ones counting less */
    bool last_guessed; /* the step before: it guessed */
    bool last_wrong;   /* and was wrong */
};

/* How a step went. */
struct run_guess_step {
    bool guessed;
    bool calm;   /* the norm neither clipped nor skipped it */
    bool far;    /* and was less than half of what would have clipped */
    bool steady; /* nothing but a step lay between it and the one before */
    double seconds;
};

void run_guess_init(struct run_guess *guess);
bool run_guess_next(const struct run_guess *guess);
/* Returns the seconds that wrong guesses cost in this step, as far as they are known. */
double run_guess_note(struct run_guess *guess, const struct run_guess_step *step);

#endif
