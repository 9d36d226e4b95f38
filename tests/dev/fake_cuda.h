/* fake_cuda.h: the CUDA runtime as far as dev_cuda*.c calls it, played by threads over host memory.
 * It keeps the runtime's promises about order and nothing more: streams run late and at their own
 * pace, a copy may not cross two pinned ranges, errors stay until they are asked for. One test thread
 * sets it up; any thread calls in. */
#ifndef TESTS_DEV_FAKE_CUDA_H
#define TESTS_DEV_FAKE_CUDA_H

#include <stddef.h>

/* A machine with one card of `memory_bytes`, working; nothing fails. */
void fake_reset(size_t memory_bytes);
/* The generation of the card from now on, past resets too: 9, Hopper, until it is said. */
void fake_generation(int major);
/* So many bytes of the card are in use by other programs. */
void fake_memory_in_use(size_t bytes);
/* What cudaGetDeviceCount and the version calls answer. */
void fake_driver(int version, int count_error);
/* The n-th call from now that can fail (1 is the next) fails with `error`; 0: none does. */
void fake_fail(int n, int error);
/* From now on no host memory is pinned, as under a small limit on locked memory. */
void fake_refuse_pins(void);
/* Whether that call came. */
int fake_failed(void);
/* From now on all events and calls report `error`, as after a fault on the card. */
void fake_break(int error);
/* Allocations, streams, events and pinned ranges that exist. */
int fake_live(void);
/* Calls of cudaEventRecord since the program began. */
unsigned fake_events_recorded(void);
/* The error that the next cudaGetLastError would tell. */
int fake_sticky(void);

/* Puts `run(arguments)` on a stream; the arguments are copied. */
int fake_stream_run(void *stream, int (*run)(void *context, const void *arguments),
                    const void *arguments, size_t bytes);

#endif
