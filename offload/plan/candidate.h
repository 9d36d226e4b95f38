/* candidate.h: builds the plan of one choice. Private to offload/plan; pure. */
#ifndef OFFLOAD_PLAN_CANDIDATE_H
#define OFFLOAD_PLAN_CANDIDATE_H

#include "offload/plan/needs.h"
#include "offload/plan/plan_internal.h"

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

/* Builds the tapes that the prediction did not need. */
int plan_candidate_complete(const struct plan_input *input, struct plan *plan);

/* What a step takes whose norm clips, where others' updates go ahead of theirs. */
int plan_candidate_predict_clipped(const struct plan_input *input, struct plan *plan);

#endif
