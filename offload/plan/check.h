/* check.h: refuses invalid input of a plan. Private to offload/plan; pure. */
#ifndef OFFLOAD_PLAN_CHECK_H
#define OFFLOAD_PLAN_CHECK_H

#include "offload/plan/types.h"

int plan_check(const struct plan_input *input);

#endif
