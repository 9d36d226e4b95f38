/* memory.h: the bytes that a plan's buffers name: one piece of the device's memory and one region of
 * the host's, and where each buffer lies in them. Made before a run, given back after it. */
#ifndef OFFLOAD_RUN_MEMORY_H
#define OFFLOAD_RUN_MEMORY_H

#include "core/base/mem.h"
#include "offload/plan/plan.h"

struct core_team;
struct dev_device;

/* What the device is asked for beyond the plan's bytes, so that buffers begin at pages. */
enum { RUN_MEMORY_SPARE_BYTES = 4096 };

struct run_memory {
    const struct plan *plan;   /* borrowed */
    struct dev_device *device; /* borrowed */
    void *device_block;        /* owned: dev_memory_free; NULL: the plan takes none */
    char *device_base;         /* the first page in it */
    uint64_t device_bytes;
    struct core_region host; /* owned */
    bool registered;         /* the host's region with the device */
    char **at;               /* owned, [plan's buffers]; NULL for those in STORE. Of a buffer with a
                                twin: the current generation; of the twin: the other */
    uint32_t count;
};

/* `team` touches pages; borrowed during the call. */
int run_memory_init(struct run_memory *memory, const struct plan *plan, struct dev_device *device,
                    struct core_team *team);
/* A zeroed one is fine. */
void run_memory_fini(struct run_memory *memory);

/* Where the first operand with this role lies; NULL where the command has none. For a command that is
 * ahead of its norm that is in the other generation, where there are two. */
char *run_memory_of(const struct run_memory *memory, const struct plan_command *command,
                    enum plan_role role);
/* The same place in the current generation. */
const char *run_memory_current(const struct run_memory *memory, const struct plan_command *command,
                               enum plan_role role);

/* What commands ahead have left becomes current. They are done, and nothing is under way that
 * reads. */
void run_memory_swap_generations(struct run_memory *memory);
/* Whether there is anything to turn. */
bool run_memory_has_generations(const struct run_memory *memory);
/* Where the buffer of that operand begins, whatever part of it the operand names: for slots, whose
 * streams have places of their own (plan_slot_states_offset). */
char *run_memory_slot_of(const struct run_memory *memory, const struct plan_command *command,
                         enum plan_role role);

#endif
