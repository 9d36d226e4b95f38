/* machine.h: the rates of one rank on a machine that a file describes. Pure. */
#ifndef OFFLOAD_RUN_MACHINE_H
#define OFFLOAD_RUN_MACHINE_H

#include "offload/run/options.h"
#include "offload/run/rates_file.h"

/* Computes the rates of one of `options->world` ranks, `options->local` on each node. Ranks work at
 * the same time, so each gets an equal part of shared resources. */
struct run_rates run_machine_rates(const struct run_machine *machine,
                                   const struct run_options *options);

#endif
