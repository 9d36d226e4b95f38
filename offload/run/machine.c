/* machine.c: gives each rank an equal part of its node. Rates that are limited by memory are
 * derived from the memory's rate. */
#include "offload/run/machine.h"

#include <math.h>

/* A copy reads and writes each byte. */
static const double copy_touches = 2;
/* A rounding adds two fp32 sums into a gradient. */
enum { ROUND_READS_BYTES = 8 };

/* Returns the divisor of the machine's memory rate for the slowest rank, which uses whole NUMA
 * nodes or shares one. */
static double memory_users(const struct run_machine *machine, double ranks)
{
    const double nodes = fmax(machine->numa_nodes, 1);
    return ranks >= nodes ? nodes * ceil(ranks / nodes) : nodes / floor(nodes / ranks);
}

static double inside_bytes(const struct run_machine *machine, double memory_bytes)
{
    return machine->inside_bytes > 0 ? machine->inside_bytes : memory_bytes / copy_touches;
}

/* Returns the bytes per second that a rank receives. Ranks receive from all others of their node;
 * meanwhile nodes receive the other nodes' parts once. */
static double coll_bytes(const struct run_machine *machine, const struct run_options *options,
                         double memory_bytes)
{
    const double world = options->world;
    const double nodes = world / options->local;
    const double inside = inside_bytes(machine, memory_bytes);
    const double received = 1 - 1 / world; /* share of the array that a rank receives */
    const double crossing = 1 - 1 / nodes; /* share that a node receives from other nodes */
    return nodes > 1 ? fmin(inside, machine->between_bytes * received / crossing) : inside;
}

struct run_rates run_machine_rates(const struct run_machine *machine,
                                   const struct run_options *options)
{
    const struct plan_format format = run_options_format(options);
    const double ranks = options->local;
    const double memory = machine->memory_bytes / memory_users(machine, ranks);
    const double compute_memory = machine->card ? machine->device_memory_bytes : memory;
    const double touched = run_options_touched_bytes(&format);
    const double link = machine->links_bytes > 0 ? machine->links_bytes / ranks : HUGE_VAL;
    struct run_rates rates = {
        .machine = {
            .read_bytes = machine->read_bytes / ranks,
            .write_bytes = machine->write_bytes / ranks,
            .mixed_bytes = machine->mixed_bytes / ranks,
            .up_bytes = machine->card ? fmin(machine->up_bytes, link) : memory / copy_touches,
            .down_bytes = machine->card ? fmin(machine->down_bytes, link) : memory / copy_touches,
            .flops = machine->card ? machine->flops : machine->flops / ranks,
            .update_elements = memory / touched,
            .memory_bytes = machine->card ? memory : 0,
            .sums_elements = memory / format.grad_bytes,
            .card_update_elements = machine->card ? compute_memory / touched : 0,
            .card_sums_elements = machine->card ? compute_memory / format.grad_bytes : 0,
            .round_elements = compute_memory / (ROUND_READS_BYTES + 2 * format.grad_bytes),
            .coll_bytes = coll_bytes(machine, options, memory),
            .command_seconds = machine->command_seconds,
            .shared_cores = !machine->card,
        }};
    /* a group over several nodes is as slow as all ranks */
    if (options->within > 0) {
        rates.machine.within_bytes = options->local % options->within == 0
                                         ? inside_bytes(machine, memory)
                                         : rates.machine.coll_bytes;
    }
    if (machine->store_bytes == 0) { /* no drive is used */
        rates.machine.read_bytes = rates.machine.write_bytes = rates.machine.mixed_bytes = memory;
    }
    return rates;
}
