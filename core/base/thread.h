/* thread.h: starts threads that do not depend on the application's state: with a stack of fixed
 * size instead of the soft limit, all signals blocked except faults, and the default floating-point
 * environment. */
#ifndef CORE_BASE_THREAD_H
#define CORE_BASE_THREAD_H

#include <fenv.h>
#include <pthread.h>

/* address space; memory is used as the stack grows */
enum { CORE_THREAD_STACK_BYTES = 8 << 20 };

/* Like pthread_create; returns 0 or a positive errno. */
int core_thread_start(pthread_t *thread, void *(*run)(void *), void *argument);

/* Installs the default floating-point environment, for work of the library on a thread of the
 * application. core_thread_fpu_leave restores `before`. */
void core_thread_fpu_enter(fenv_t *before);
void core_thread_fpu_leave(const fenv_t *before);

#endif
