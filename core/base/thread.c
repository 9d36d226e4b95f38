/* thread.c: pthread_create with attributes. Any thread. */
#include "core/base/thread.h"

int core_thread_start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    pthread_attr_t how;
    int rc = pthread_attr_init(&how);
    if (rc != 0) {
        return rc;
    }
    rc = pthread_attr_setstacksize(&how, CORE_THREAD_STACK_BYTES);
    rc = rc != 0 ? rc : pthread_create(thread, &how, run, argument);
    pthread_attr_destroy(&how);
    return rc;
}
