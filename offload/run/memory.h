/* memory.h: the memory of a plan's buffers on device and host. The rank's thread changes it while
 * no lane uses it; lanes read it. */
#ifndef OFFLOAD_RUN_MEMORY_H
#define OFFLOAD_RUN_MEMORY_H

#include "core/base/mem.h"
#include "offload/plan/plan.h"

struct core_team;
struct dev_device;
struct run_place;

/* spare bytes, so that the buffers in DEVICE begin at a page */
enum { RUN_MEMORY_SPARE_BYTES = 4096 };

struct run_memory {
    const struct plan *plan;   /* borrowed */
    struct dev_device *device; /* borrowed */
    void *device_block;        /* owned: dev_memory_free; NULL: DEVICE is empty, or `separate` */
    /* first page in device_block; NULL if that is NULL */
    char *device_base;
    bool separate; /* `at` owns an allocation for each buffer in DEVICE */
    uint64_t device_bytes;
    struct core_region host; /* owned */
    bool registered;         /* the host's region is registered with the device */
    /* owned, [plan's buffers]; NULL in STORE. A buffer with a twin has the current generation, the
     * twin the other one. */
    char **at;
    uint32_t count;
};

/* Pointers are borrowed, `place` and `team` only during the call. */
struct run_memory_options {
    const struct plan *plan;
    const struct plan_input *input;
    struct dev_device *device;
    const struct run_place *place; /* where chunks are placed; NULL: anywhere */
    /* touches the pages, on the nodes of `place`; NULL: the caller does */
    struct core_team *team;
};
int run_memory_init(struct run_memory *memory, const struct run_memory_options *options);
/* Accepts a zeroed struct. */
void run_memory_fini(struct run_memory *memory);

/* Returns the address of the first operand with this role, or NULL. For a speculative command: in
 * the other generation, if there are two. */
char *run_memory_of(const struct run_memory *memory, const struct plan_command *command,
                    enum plan_role role);
/* Returns the address of operand `index` with the role PLAN_AS_BORROWED. */
const char *run_memory_borrowed(const struct run_memory *memory, const struct plan_command *command,
                                uint32_t index);
/* Like run_memory_of, but always in the current generation. */
const char *run_memory_current(const struct run_memory *memory, const struct plan_command *command,
                               enum plan_role role);

/* Makes the results of speculative commands current. No command may read or write a buffer
 * meanwhile. */
void run_memory_swap_generations(struct run_memory *memory);
/* Returns whether a buffer in memory has two generations. */
bool run_memory_has_generations(const struct run_memory *memory);
/* Like run_memory_current, but returns the beginning of the buffer: for slots, where streams have
 * offsets (plan_slot_states_offset). */
char *run_memory_slot_of(const struct run_memory *memory, const struct plan_command *command,
                         enum plan_role role);

#endif
