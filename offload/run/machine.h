/* machine.h: the rates of one rank on a machine that a file describes. Pure. */
#ifndef OFFLOAD_RUN_MACHINE_H
#define OFFLOAD_RUN_MACHINE_H

#include "offload/run/options.h"
#include "offload/run/rates_file.h"

/* Computes the rates of one of `options->world` ranks, of which `options->local` are on each node.
 * They all do the same work at the same time, so each gets an equal part of the resources that they
 * share. */
struct run_rates run_machine_rates(const struct run_machine *machine,
                                   const struct run_options *options);

#endif
