/* runtime.h: the CUDA runtime with which test_card_queues.c is linked: the emulated one
 * (runtime_fake.c) or that of this machine (runtime_card.c). */
#ifndef TESTS_DEV_RUNTIME_H
#define TESTS_DEV_RUNTIME_H

#include <stddef.h>

/* Sets up the machine again, with nothing allocated. */
void runtime_reset(void);
/* Returns the number of allocations, streams, events and pinned ranges that exist; 0 where they are
 * not counted. */
int runtime_live(void);
/* Puts `run(NULL, arguments)` on a stream; the arguments are copied. */
int runtime_stream_run(void *stream, int (*run)(void *context, const void *arguments),
                       const void *arguments, size_t bytes);

#endif
