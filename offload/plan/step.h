/* step.h: adds the commands of a step in program order. Pure. */
#ifndef OFFLOAD_PLAN_STEP_H
#define OFFLOAD_PLAN_STEP_H

#include "offload/plan/builder.h"
#include "offload/plan/layout.h"

/* Adds the commands of a tape of `kind`, between plan_builder_begin() and plan_builder_end(). */
int plan_step_add(struct plan_builder *builder, const struct plan_input *input,
                  const struct plan_choice *choice, const struct plan_layout *layout,
                  enum plan_kind kind);

#endif
