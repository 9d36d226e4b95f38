/* fake_cuda.h: the part of the CUDA runtime that dev_cuda*.c calls, emulated by threads on host
 * memory. It guarantees the order that the runtime guarantees and nothing more: streams run late
 * and with varying speed, a copy may not cross two pinned ranges, errors stay until they are read.
 * One test thread sets it up; any thread calls it. */
#ifndef TESTS_DEV_FAKE_CUDA_H
#define TESTS_DEV_FAKE_CUDA_H

#include <stddef.h>

/* Sets up a working machine with one GPU of `memory_bytes`; nothing fails. */
void fake_reset(size_t memory_bytes);
/* Until the next reset the machine has `count` GPUs, each with the memory that fake_reset was
 * given. */
void fake_cards(int count);
/* Sets the generation of the GPU, which resets keep; initially 9 (Hopper). */
void fake_generation(int major);
/* From now on other programs use this much memory of the GPU. */
void fake_memory_in_use(size_t bytes);
/* Sets the results of cudaGetDeviceCount and the version calls. */
void fake_driver(int version, int count_error);
/* Lets the n-th call from now on of this thread that can fail (1: the next call) fail with `error`;
 * 0: no call fails. */
void fake_fail(int n, int error);
/* Like fake_fail(), but counts the calls of all threads. */
void fake_fail_anywhere(int n, int error);
/* From now on host memory cannot be pinned, as under a low limit on locked memory. */
void fake_refuse_pins(void);
/* Returns whether the requested failure has happened. */
int fake_failed(void);
/* From now on all events, and all calls that can fail, report `error`, as after a fault of the
 * GPU. */
void fake_break(int error);
/* Returns the number of allocations on GPUs, streams, events and pinned ranges that were made since
 * the reset and still exist. */
int fake_live(void);
/* Returns the number of calls of cudaEventRecord since the program began. */
unsigned fake_events_recorded(void);
/* Returns the error that the next cudaGetLastError of this thread would return. */
int fake_sticky(void);

/* Puts run(NULL, arguments) on a stream; the arguments are copied. Libraries that the program opens
 * find this function, too. */
__attribute__((visibility("default"))) int
fake_stream_run(void *stream, int (*run)(void *context, const void *arguments),
                const void *arguments, size_t bytes);

#endif
