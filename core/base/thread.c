/* thread.c: pthread_create with attributes, signals and floating-point modes. Any thread. */
#include "core/base/thread.h"

#include <signal.h>

void core_thread_fpu_enter(fenv_t *before)
{
    (void)fegetenv(before);
    (void)fesetenv(FE_DFL_ENV);
}

void core_thread_fpu_leave(const fenv_t *before)
{
    (void)fesetenv(before);
}

/* A thread inherits floating-point modes and signal mask, so they are changed for the call. */
static int start(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *argument)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigset_t blocked;
    sigset_t before;
    fenv_t fpu;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        sigdelset(&blocked, faults[i]);
    }
    core_thread_fpu_enter(&fpu);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    const int rc = pthread_create(thread, how, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    core_thread_fpu_leave(&fpu);
    return rc;
}

int core_thread_start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    pthread_attr_t how;
    int rc = pthread_attr_init(&how);
    if (rc != 0) {
        return rc;
    }
    rc = pthread_attr_setstacksize(&how, CORE_THREAD_STACK_BYTES);
    if (rc == 0) {
        rc = start(thread, &how, run, argument);
    }
    pthread_attr_destroy(&how);
    return rc;
}
