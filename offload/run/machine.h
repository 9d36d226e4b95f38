/* machine.h: the rates of one rank on a machine that a file describes. Pure. */
#ifndef OFFLOAD_RUN_MACHINE_H
#define OFFLOAD_RUN_MACHINE_H

#include "offload/run/options.h"
#include "offload/run/rates_file.h"

/* What one of `options->world` ranks gets, of which `options->local` are on each node. They all do the same at
 * the same time, so each gets an equal part of what they share. */
struct run_rates run_machine_rates(const struct run_machine *machine,
                                   const struct run_options *options);

#endif
