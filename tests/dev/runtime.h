/* runtime.h: the CUDA runtime of test_card_queues.c: emulated (runtime_fake.c) or real
 * (runtime_card.c). */
#ifndef TESTS_DEV_RUNTIME_H
#define TESTS_DEV_RUNTIME_H

#include <stddef.h>

/* Resets the emulated machine; does nothing on a real GPU. */
void runtime_reset(void);
/* Returns the number of allocations, streams, events and pinned ranges; 0 if they are
 * not counted. */
int runtime_live(void);
/* Puts `run(NULL, arguments)` on a stream; the arguments are copied. */
int runtime_stream_run(void *stream, int (*run)(void *context, const void *arguments),
                       const void *arguments, size_t bytes);

#endif
