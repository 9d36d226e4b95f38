/* poison.h: tells AddressSanitizer which bytes must not be accessed; empty in other builds. */
#ifndef CORE_BASE_POISON_H
#define CORE_BASE_POISON_H

#include <stddef.h>
#include <stdint.h>

#if defined(__SANITIZE_ADDRESS__)
#define CORE_POISON_ON 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CORE_POISON_ON 1
#endif
#endif
#ifndef CORE_POISON_ON
#define CORE_POISON_ON 0
#endif

#if CORE_POISON_ON
/* from <sanitizer/asan_interface.h> */
void __asan_poison_memory_region(void const volatile *start, size_t bytes);
void __asan_unpoison_memory_region(void const volatile *start, size_t bytes);
#endif

static inline void core_poison(const void *start, uint64_t bytes)
{
#if CORE_POISON_ON
    __asan_poison_memory_region(start, bytes);
#else
    (void)start;
    (void)bytes;
#endif
}

static inline void core_unpoison(const void *start, uint64_t bytes)
{
#if CORE_POISON_ON
    __asan_unpoison_memory_region(start, bytes);
#else
    (void)start;
    (void)bytes;
#endif
}

#endif
