/* fail_alloc.h: makes the n-th request to the system fail, for n = 1, 2, 3 ... until a run is
 * clean.
 *
 *     static int queue_life(void)
 *     {
 *         struct core_queue *queue = NULL;
 *         int rc = core_queue_create(&(struct core_queue_options){.name = "q"}, &queue);
 *         core_queue_destroy(queue);
 *         return rc;
 *     }
 *     check_int(test_fail_nth(queue_life), >=, 3);
 *
 * Requests are malloc, calloc, realloc, aligned_alloc, posix_memalign, strdup, strndup, mmap and
 * pthread_create, called by code that is linked statically into the test. Programs depend on
 * fail_alloc_dep, which makes the linker insert wrappers (--wrap). */
#ifndef TESTS_HARNESS_FAIL_ALLOC_H
#define TESTS_HARNESS_FAIL_ALLOC_H

/* `life` creates an object, uses it, destroys it, and returns 0 or -errno. A run of `life` must
 *   - return 0 (a fallback was taken), or -ENOMEM or -EAGAIN (threads) with a message;
 *   - free its blocks and mappings and join its threads.
 * Otherwise the case fails, with n and the name of the request. Returns the number of requests of a
 * clean run, at most 10,000. If `life` fills permanent caches, run it once before. */
unsigned test_fail_nth(int (*life)(void));

/* Works like test_fail_nth, for n = 1, 1 + stride, 1 + 2 * stride ... TEST_STRIDE(3) saves time
 * under ThreadSanitizer. */
unsigned test_fail_every(int (*life)(void), unsigned stride);

#endif
