/* fail_alloc.h: makes the n-th request to the system fail, for n = 1, 2, 3 ... until a run
 * is clean.
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
 * pthread_create, called on any thread by code that is linked statically into the test (not by
 * shared libraries). A program uses this by depending on fail_alloc_dep, which makes the linker
 * insert wrappers (--wrap); without test_fail_nth the wrappers only call the originals. */
#ifndef TESTS_HARNESS_FAIL_ALLOC_H
#define TESTS_HARNESS_FAIL_ALLOC_H

/* `life` creates an object, uses it a little, destroys it, and returns 0 or the -errno of what
 * failed. Each run must
 *   - return 0 (a fallback was taken), or -ENOMEM or -EAGAIN (threads) with a message;
 *   - free every block and mapping and join every thread; this is checked after each run.
 * Otherwise the running case fails, with n and the name of the request. Returns how many requests a
 * clean run makes; more than 10,000 are a failure, too. If `life` fills permanent caches, run it
 * once before. */
unsigned test_fail_nth(int (*life)(void));

/* Works like test_fail_nth, for n = 1, 1 + stride, 1 + 2 * stride ... With TEST_STRIDE(3),
 * ThreadSanitizer sees every third failure: most requests come one after another from one
 * thread. */
unsigned test_fail_every(int (*life)(void), unsigned stride);

#endif
