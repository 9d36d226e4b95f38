/* what_if.h: plans as if one part of the machine were twice as fast or as large. Pure. */
#ifndef OFFLOAD_RUN_WHAT_IF_H
#define OFFLOAD_RUN_WHAT_IF_H

#include "offload/run/prepare.h"

/* Returns the name of part `index`, from 0, of the machine that is planned for; NULL after the last
 * one. */
const char *run_what_if_part(const struct run_prepared *prepared, unsigned index);

/* Sets *seconds to the predicted time of a step with part `index` twice as fast or as large. */
int run_what_if(const struct run_prepared *prepared, unsigned index, double *seconds);

#endif
