/* plan.h: from sizes, budgets and rates to placement, tapes and a predicted step.
 * Pure functions: no I/O, no threads, the same plan for the same input on every machine. A plan is
 * immutable once created; any thread may read it. choose.c creates plans, plan.c reads them. */
#ifndef OFFLOAD_PLAN_PLAN_H
#define OFFLOAD_PLAN_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "offload/plan/shard.h"
#include "offload/plan/tape.h"
#include "offload/plan/types.h"

struct plan;

/* -EFBIG with a sentence that names the smallest budgets that would do where it cannot fit. */
int plan_create(const struct plan_input *input, struct plan **out);
void plan_destroy(struct plan *plan);

enum plan_acts plan_chosen_acts(const struct plan *plan);
enum plan_order plan_chosen_order(const struct plan *plan);
enum plan_timing plan_chosen_timing(const struct plan *plan);
const struct plan_block_place *plan_block_place(const struct plan *plan, uint32_t block);
uint64_t plan_tier_bytes(const struct plan *plan, enum plan_tier tier);
uint64_t plan_chunk_elements(const struct plan *plan);
/* Where a chunk's states begin in a state slot; in front of them lie its working weights, where
 * they go through the slot at all (on the CPU device they do not). */
uint64_t plan_slot_states_offset(const struct plan *plan);
/* Where a chunk's gradient lies in a state slot, behind the states, where gradients wait in STORE. */
uint64_t plan_slot_gradient_offset(const struct plan *plan);
/* Bytes of a tier that one consumer takes; `input` is the plan's. */
uint64_t plan_consumer_bytes(const struct plan_input *input, const struct plan *plan,
                             enum plan_tier tier, enum plan_consumer consumer);
uint32_t plan_buffer_count(const struct plan *plan);
const struct plan_buffer *plan_buffer(const struct plan *plan, uint32_t index);
/* Which buffer is for what (layout.h): for loading, saving and looking, when no tape runs. */
struct plan_layout;
const struct plan_layout *plan_layout_of(const struct plan *plan);

/* The tape to run for `kind` after a tape of kind `before` (PLAN_KIND_COUNT: nothing ran yet). NULL
 * where the two do not join. */
const struct plan_tape *plan_tape(const struct plan *plan, enum plan_kind before,
                                  enum plan_kind kind);

/* The kind that follows itself over and over. */
enum plan_kind plan_steady(const struct plan *plan);
/* How often the streams that an update overwrites are held: 1, or 2 where it speculates. */
unsigned plan_generations(const struct plan *plan);

/* Of the steady kind after itself. */
const struct plan_prediction *plan_predicted(const struct plan *plan);
/* The same of steps whose norm clips: another prediction only where updates go ahead of their norms. */
const struct plan_prediction *plan_predicted_clipped(const struct plan *plan);

/* The index-th fastest policy of those that were not chosen; false beyond the last. */
bool plan_alternative(const struct plan *plan, unsigned index, struct plan_alternative *out);

/* Of all tapes and buffers; of several ranks, of what all of them must do alike. */
uint64_t plan_hash(const struct plan *plan);

#endif
