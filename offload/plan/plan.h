/* plan.h: turns sizes, budgets and rates into placement, tapes and a predicted step. Pure: equal
 * input gives equal plans on every machine. A plan is immutable; any thread may read it. */
#ifndef OFFLOAD_PLAN_PLAN_H
#define OFFLOAD_PLAN_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "offload/plan/shard.h"
#include "offload/plan/tape.h"
#include "offload/plan/types.h"

struct plan;

/* Returns -EFBIG if no plan fits; the message names sufficient budgets, if any are known. */
int plan_create(const struct plan_input *input, struct plan **out);
void plan_destroy(struct plan *plan);

enum plan_acts plan_chosen_acts(const struct plan *plan);
enum plan_order plan_chosen_order(const struct plan *plan);
enum plan_timing plan_chosen_timing(const struct plan *plan);
const struct plan_block_place *plan_block_place(const struct plan *plan, uint32_t block);
uint64_t plan_tier_bytes(const struct plan *plan, enum plan_tier tier);
uint64_t plan_chunk_elements(const struct plan *plan);
/* Returns the byte of a state slot where a chunk's states begin. Working weights come first, except
 * on the CPU device, where slots have none. */
uint64_t plan_slot_states_offset(const struct plan *plan);
/* Returns the byte of a state slot where a chunk's gradient begins, if gradients wait in STORE. */
uint64_t plan_slot_gradient_offset(const struct plan *plan);
/* Returns the bytes of a tier that one consumer takes; `input` is that of plan_create(). */
uint64_t plan_consumer_bytes(const struct plan_input *input, const struct plan *plan,
                             enum plan_tier tier, enum plan_consumer consumer);
uint32_t plan_buffer_count(const struct plan *plan);
const struct plan_buffer *plan_buffer(const struct plan *plan, uint32_t index);
/* Returns the plan's layout (layout.h), which lives as long as the plan. */
struct plan_layout;
const struct plan_layout *plan_layout_of(const struct plan *plan);

/* Returns the tape of `kind` after a tape of kind `before` (PLAN_KIND_COUNT: none); NULL if
 * `kind` may not follow. Without plan_wishes.saves, the tape is empty if either kind saves a
 * checkpoint. */
const struct plan_tape *plan_tape(const struct plan *plan, enum plan_kind before,
                                  enum plan_kind kind);

/* Returns the kind of step that a run repeats. */
enum plan_kind plan_steady(const struct plan *plan);
/* Returns the generations of what an update overwrites: 1, or 2 if updates are speculative. */
unsigned plan_generations(const struct plan *plan);

const struct plan_prediction *plan_predicted(const struct plan *plan);
/* Returns the prediction for a step whose norm clips, which differs only in speculative plans. */
const struct plan_prediction *plan_predicted_clipped(const struct plan *plan);

/* Describes alternative `index` (0: the fastest) of those that fit and were not chosen. Returns
 * false if there is none. */
bool plan_alternative(const struct plan *plan, unsigned index, struct plan_alternative *out);

/* Hashes buffers and commands; with several ranks, only commands that ranks must have in common. */
uint64_t plan_hash(const struct plan *plan);

#endif
