/* thread.h: starts threads that do not depend on the state of the application that starts them.
 * Their stack has a fixed size, because the C library would otherwise use the soft limit of the
 * process's stack, which a user may have set lower than a thread here needs. They block all signals
 * except those that report a fault of the thread itself, so that handlers of the application run on
 * its own threads. They have the default floating-point environment, not the caller's (rounding,
 * flush to zero), so results do not depend on the caller. */
#ifndef CORE_BASE_THREAD_H
#define CORE_BASE_THREAD_H

#include <fenv.h>
#include <pthread.h>

/* Address space; memory is used only as the stack grows. */
enum { CORE_THREAD_STACK_BYTES = 8 << 20 };

/* Like pthread_create; returns 0 or a positive errno. */
int core_thread_start(pthread_t *thread, void *(*run)(void *), void *argument);

/* Installs the default floating-point environment on the calling thread, for work of the library on
 * a thread of the application; core_thread_fpu_leave restores `before`. */
void core_thread_fpu_enter(fenv_t *before);
void core_thread_fpu_leave(const fenv_t *before);

#endif
