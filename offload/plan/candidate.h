/* candidate.h: builds the plan of one choice. Private to offload/plan; pure. */
#ifndef OFFLOAD_PLAN_CANDIDATE_H
#define OFFLOAD_PLAN_CANDIDATE_H

#include "offload/plan/needs.h"
#include "offload/plan/plan_internal.h"

/* Creates the plan of one choice: uses spare memory and predicts the steady step. If the choice
 * does not fit, returns 0 and sets *out to NULL. Records in `needs` the least memory that the
 * choice takes. */
int plan_candidate_create(const struct plan_input *input, const struct plan_choice *choice,
                          struct plan_needs *needs, struct plan **out);

/* Sets *fitted to whether the choice fits; builds no plan. */
int plan_candidate_fits(const struct plan_input *input, const struct plan_choice *choice,
                        bool *fitted);

/* Records in `needs` the least memory that a choice takes, regardless of the budgets of DEVICE and
 * HOST. If the choice fits, also records the least of STORE that it takes within these budgets. */
int plan_candidate_need(const struct plan_input *input, const struct plan_choice *choice,
                        struct plan_needs *needs);

/* Lays out the plan's choice again for the rank of `input`, and frees all tapes. */
int plan_candidate_turn(const struct plan_input *input, struct plan *plan);

/* Builds all tapes that can occur in a run and are not built yet. */
int plan_candidate_complete(const struct plan_input *input, struct plan *plan);

/* Predicts a step whose norm clips. The prediction differs from the steady step only in speculative
 * plans. */
int plan_candidate_predict_clipped(const struct plan_input *input, struct plan *plan);

#endif
