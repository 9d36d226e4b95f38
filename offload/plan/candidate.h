/* candidate.h: a plan while it is chosen: private to plan.c, choose.c and candidate.c. */
#ifndef OFFLOAD_PLAN_CANDIDATE_H
#define OFFLOAD_PLAN_CANDIDATE_H

#include "offload/plan/layout.h"
#include "offload/plan/needs.h"
#include "offload/plan/residence.h"

/* The fastest that was tried of each policy; 0 seconds: none fits. */
struct plan_tried {
    struct plan_alternative of[PLAN_ACTS_STORE + 1][PLAN_TIMING_SPECULATIVE + 1];
};

struct plan {
    struct plan_choice choice;
    struct plan_tried tried;
    struct plan_residence residence;
    struct plan_layout *layout;                                   /* owned */
    struct plan_tape tapes[PLAN_KIND_COUNT + 1][PLAN_KIND_COUNT]; /* [before][kind] */
    struct plan_prediction predicted;
    struct plan_prediction predicted_clipped; /* where no update goes ahead of its norm */
    bool alone;                               /* one rank */
    bool may_skip; /* a step may leave nothing pending although its updates are deferred */
};

/* A plan for one choice with spare memory spent and its steady step predicted, or NULL in *out where
 * it does not fit; `needs` gets the least that it takes. */
int plan_candidate_create(const struct plan_input *input, const struct plan_choice *choice,
                          struct plan_needs *needs, struct plan **out);

/* Whether it fits at all; nothing is built. */
int plan_candidate_fits(const struct plan_input *input, const struct plan_choice *choice,
                        bool *fitted);

/* Notes the least that a choice takes, whatever the budgets of DEVICE and HOST, and the least of STORE
 * where it fits into these. */
int plan_candidate_need(const struct plan_input *input, const struct plan_choice *choice,
                        struct plan_needs *needs);

/* The same choice for another rank: layout anew, no tapes yet. */
int plan_candidate_turn(const struct plan_input *input, struct plan *plan);

/* May a tape of `kind` follow one of `before` (PLAN_KIND_COUNT: a run's start)? */
bool plan_candidate_joins(const struct plan *plan, int before, int kind);

/* Builds the tapes that the prediction did not need. */
int plan_candidate_complete(const struct plan_input *input, struct plan *plan);

/* What a step takes whose norm clips, where others' updates go ahead of theirs. */
int plan_candidate_predict_clipped(const struct plan_input *input, struct plan *plan);

/* The fastest plan that fits, or -EFBIG with a sentence. */
int plan_choose(const struct plan_input *input, struct plan **out);

/* -EINVAL with a sentence for input that means nothing. */
int plan_check(const struct plan_input *input);

#endif
