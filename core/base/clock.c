/* clock.c: CLOCK_MONOTONIC as one number. */
#include "core/base/clock.h"

#include <time.h>

int64_t core_clock_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
