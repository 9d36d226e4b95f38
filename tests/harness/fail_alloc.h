/* fail_alloc.h: makes the n-th request to the system fail, for n = 1, 2, 3 ... until a run is clean.
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
 * pthread_create, as called from what is linked statically into the test (not from inside shared
 * libraries), on any thread. A program uses it by depending on fail_alloc_dep, which has the linker
 * put wrappers (--wrap) in front of them; without test_fail_nth they only pass on. */
#ifndef TESTS_HARNESS_FAIL_ALLOC_H
#define TESTS_HARNESS_FAIL_ALLOC_H

/* `life` makes an object, uses it a little, ends it, and returns 0 or the -errno of what failed. Each
 * run has to
 *   - return 0 (a fallback was taken), or -ENOMEM, or -EAGAIN (threads), with a sentence of its own;
 *   - give back every block, mapping and thread, which is checked after each run.
 * Fails the running case otherwise and names n and the request. Returns how many requests a clean run
 * makes; above 10,000 is a failure too. Run `life` once before where it fills caches for good. */
unsigned test_fail_nth(int (*life)(void));

#endif
