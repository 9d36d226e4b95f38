/* candidate.h: builds the plan of one choice. Private to offload/plan; pure. */
#ifndef OFFLOAD_PLAN_CANDIDATE_H
#define OFFLOAD_PLAN_CANDIDATE_H

#include "offload/plan/needs.h"
#include "offload/plan/plan_internal.h"

/* Creates the plan of one choice and predicts the steady step. If the choice does not fit, returns
 * 0 and sets *out to NULL. Adds to `needs` what the choice needs. */
int plan_candidate_create(const struct plan_input *input, const struct plan_choice *choice,
                          struct plan_needs *needs, struct plan **out);

/* Sets *fitted to whether the choice fits; builds no plan. */
int plan_candidate_fits(const struct plan_input *input, const struct plan_choice *choice,
                        bool *fitted);

/* Adds to `needs` what the choice needs at least of DEVICE and HOST, and if it fits, what it needs
 * of STORE when it fills the budgets of DEVICE and HOST. */
int plan_candidate_need(const struct plan_input *input, const struct plan_choice *choice,
                        struct plan_needs *needs);

/* Lays out the plan's choice again for the rank of `input`, and frees the tapes. */
int plan_candidate_turn(const struct plan_input *input, struct plan *plan);

/* Builds the missing tapes of a run. */
int plan_candidate_complete(const struct plan_input *input, struct plan *plan);

/* Predicts a step whose norm clips, which differs only in speculative plans. */
int plan_candidate_predict_clipped(const struct plan_input *input, struct plan *plan);

#endif
