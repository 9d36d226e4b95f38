/* fail_alloc.c: wrappers that the linker inserts, a countdown, and a table of live blocks. Any
 * thread may call the wrappers. */
#include "tests/harness/fail_alloc.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "core/base/err.h"
#include "tests/harness/test.h"

enum { TABLE_SLOTS = 1 << 16, REQUESTS_MAX = 10000 };

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__real_aligned_alloc(size_t align, size_t bytes);
int __real_posix_memalign(void **out, size_t align, size_t bytes);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t bytes);
void __real_free(void *block);
/* With 64-bit file offsets, sources that call mmap are linked to mmap64. */
void *__real_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);
void *__real_mmap64(void *at, size_t bytes, int protection, int flags, int file, off_t offset);
int __real_munmap(void *at, size_t bytes);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *),
                          void *argument);
int __real_pthread_join(pthread_t thread, void **result);

void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_aligned_alloc(size_t align, size_t bytes);
int __wrap_posix_memalign(void **out, size_t align, size_t bytes);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t bytes);
void __wrap_free(void *block);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset);
void *__wrap_mmap64(void *at, size_t bytes, int protection, int flags, int file, off_t offset);
int __wrap_munmap(void *at, size_t bytes);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *),
                          void *argument);
int __wrap_pthread_join(pthread_t thread, void **result);

static _Atomic bool armed;
/* number of the request that fails, counted from the next one; 0: none */
static _Atomic unsigned left;
static _Atomic unsigned requests;
static _Atomic(const char *) failed; /* NULL: none yet */
static _Atomic int64_t mapped_bytes;
static _Atomic int threads;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uintptr_t table[TABLE_SLOTS]; /* live blocks that were allocated while armed; 0: free slot */
static _Atomic unsigned alive;       /* entries of the table; also read without the lock */

/* ---- the countdown and the table ---- */

static bool fails_now(const char *what)
{
    if (!atomic_load(&armed)) {
        return false;
    }
    atomic_fetch_add(&requests, 1);
    unsigned before = atomic_load(&left);
    while (before > 0 && !atomic_compare_exchange_weak(&left, &before, before - 1)) {
    }
    if (before == 1) {
        atomic_store(&failed, what);
    }
    return before == 1;
}

static void *born(void *block)
{
    if (block != NULL && atomic_load(&armed)) {
        pthread_mutex_lock(&lock);
        for (unsigned i = 0; i < TABLE_SLOTS; i++) {
            if (table[i] == 0) {
                table[i] = (uintptr_t)block;
                alive++;
                break;
            }
        }
        pthread_mutex_unlock(&lock);
    }
    return block;
}

/* Ignores blocks that are not in the table. */
static void dies(uintptr_t block)
{
    if (block != 0 && alive > 0) {
        pthread_mutex_lock(&lock);
        for (unsigned i = 0; i < TABLE_SLOTS && alive > 0; i++) {
            if (table[i] == block) {
                table[i] = 0;
                alive--;
                break;
            }
        }
        pthread_mutex_unlock(&lock);
    }
}

static void *no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

/* ---- the wrappers ---- */

void *__wrap_malloc(size_t bytes)
{
    return fails_now("malloc") ? no_memory() : born(__real_malloc(bytes));
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return fails_now("calloc") ? no_memory() : born(__real_calloc(count, bytes));
}

void *__wrap_realloc(void *old, size_t bytes)
{
    if (fails_now("realloc")) {
        return no_memory();
    }
    uintptr_t before = (uintptr_t)old;
    void *block = __real_realloc(old, bytes);
    if (block != NULL) {
        dies(before);
    }
    return born(block);
}

void *__wrap_aligned_alloc(size_t align, size_t bytes)
{
    return fails_now("aligned_alloc") ? no_memory() : born(__real_aligned_alloc(align, bytes));
}

int __wrap_posix_memalign(void **out, size_t align, size_t bytes)
{
    if (fails_now("posix_memalign")) {
        return ENOMEM;
    }
    int rc = __real_posix_memalign(out, align, bytes);
    if (rc == 0) {
        born(*out);
    }
    return rc;
}

char *__wrap_strdup(const char *text)
{
    return fails_now("strdup") ? no_memory() : born(__real_strdup(text));
}

char *__wrap_strndup(const char *text, size_t bytes)
{
    return fails_now("strndup") ? no_memory() : born(__real_strndup(text, bytes));
}

void __wrap_free(void *block)
{
    dies((uintptr_t)block);
    __real_free(block);
}

static void *mapped(void *there, size_t bytes)
{
    if (there != MAP_FAILED && atomic_load(&armed)) {
        atomic_fetch_add(&mapped_bytes, (int64_t)bytes);
    }
    return there;
}

static bool mapping_fails(void)
{
    errno = ENOMEM;
    return fails_now("mmap");
}

void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
    return mapping_fails() ? MAP_FAILED
                           : mapped(__real_mmap(at, bytes, protection, flags, file, offset), bytes);
}

void *__wrap_mmap64(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
    return mapping_fails()
               ? MAP_FAILED
               : mapped(__real_mmap64(at, bytes, protection, flags, file, offset), bytes);
}

int __wrap_munmap(void *at, size_t bytes)
{
    int rc = __real_munmap(at, bytes);
    if (rc == 0 && atomic_load(&armed)) {
        atomic_fetch_sub(&mapped_bytes, (int64_t)bytes);
    }
    return rc;
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *),
                          void *argument)
{
    if (fails_now("pthread_create")) {
        return EAGAIN;
    }
    int rc = __real_pthread_create(thread, how, run, argument);
    if (rc == 0 && atomic_load(&armed)) {
        atomic_fetch_add(&threads, 1);
    }
    return rc;
}

int __wrap_pthread_join(pthread_t thread, void **result)
{
    int rc = __real_pthread_join(thread, result);
    if (rc == 0 && atomic_load(&armed)) {
        atomic_fetch_sub(&threads, 1);
    }
    return rc;
}

/* ---- the loop ---- */

static int run_once(int (*life)(void), unsigned n)
{
    memset(table, 0, sizeof table);
    alive = 0;
    atomic_store(&mapped_bytes, 0);
    atomic_store(&threads, 0);
    atomic_store(&requests, 0);
    atomic_store(&failed, NULL);
    atomic_store(&left, n);
    (void)core_err_adopt(-EIO, "");
    atomic_store(&armed, true);
    int rc = life();
    atomic_store(&armed, false);
    return rc;
}

unsigned test_fail_every(int (*life)(void), unsigned stride)
{
    for (unsigned n = 1; n <= REQUESTS_MAX; n += stride) {
        int rc = run_once(life, n);
        const char *what = atomic_load(&failed);
        const char *said = what != NULL ? what : "nothing";
        if (alive != 0 || mapped_bytes != 0 || threads != 0) {
            test_fail(__FILE__, __LINE__,
                      "request %u (%s) failed and left %u blocks, %" PRId64
                      " mapped bytes and %d threads",
                      n, said, alive, atomic_load(&mapped_bytes), atomic_load(&threads));
        }
        if (what == NULL && rc == 0) {
            return atomic_load(&requests);
        }
        if (rc != 0 && (what == NULL || (rc != -ENOMEM && rc != -EAGAIN))) {
            test_fail(__FILE__, __LINE__, "request %u (%s) failed and the run returned %d: %s", n,
                      said, rc, core_err_message());
        }
        if (rc != 0 && core_err_message()[0] == '\0') {
            test_fail(__FILE__, __LINE__, "request %u (%s) failed without a message", n, said);
        }
    }
    test_fail(__FILE__, __LINE__, "no clean run within %d requests", REQUESTS_MAX);
}

unsigned test_fail_nth(int (*life)(void))
{
    return test_fail_every(life, 1);
}
