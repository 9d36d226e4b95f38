/* thread.h: threads with a stack of a stated size. Without one the C library takes the soft limit of
 * the process's stack, which a user may have set to less than a thread here needs. */
#ifndef CORE_BASE_THREAD_H
#define CORE_BASE_THREAD_H

#include <pthread.h>

/* Address space; memory is taken as it is used. */
enum { CORE_THREAD_STACK_BYTES = 8 << 20 };

/* As pthread_create: 0, or a positive errno. */
int core_thread_start(pthread_t *thread, void *(*run)(void *), void *argument);

#endif
