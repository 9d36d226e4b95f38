/* fake_cuda.h: the part of the CUDA runtime that tide calls, emulated by threads on host memory. It
 * guarantees only what the runtime guarantees: streams run late and at varying speed. One test
 * thread sets it up; any thread calls it. */
#ifndef TESTS_DEV_FAKE_CUDA_H
#define TESTS_DEV_FAKE_CUDA_H

#include <stddef.h>

/* Sets up a machine with one GPU of `memory_bytes`; nothing fails. */
void fake_reset(size_t memory_bytes);
/* Until the next reset, the machine has `count` GPUs of the same memory. */
void fake_cards(int count);
/* Sets the major compute capability, which resets keep; initially 9 (Hopper). */
void fake_generation(int major);
/* Until the next reset, other programs use this much memory of the GPU. */
void fake_memory_in_use(size_t bytes);
/* Sets the results of cudaDriverGetVersion and cudaGetDeviceCount. */
void fake_driver(int version, int count_error);
/* The n-th of this thread's next calls that can fail returns `error` (1: the next call;
 * 0: none). */
void fake_fail(int n, int error);
/* Like fake_fail(), but counts the calls of all threads. */
void fake_fail_anywhere(int n, int error);
/* Until the next reset, host memory cannot be pinned. */
void fake_refuse_pins(void);
/* Returns whether the requested failure has happened. */
int fake_failed(void);
/* From now on events, and calls that can fail, report `error`; 0: they work again. */
void fake_break(int error);
/* Returns the number of allocations, streams, events and pinned ranges that exist. */
int fake_live(void);
/* Returns the number of events recorded since the program began. */
unsigned fake_events_recorded(void);
/* Returns the error that the next cudaGetLastError of this thread would return. */
int fake_sticky(void);

/* Puts run(NULL, arguments) on a stream; the arguments are copied. Libraries that the program opens
 * find this function. */
__attribute__((visibility("default"))) int
fake_stream_run(void *stream, int (*run)(void *context, const void *arguments),
                const void *arguments, size_t bytes);

#endif
