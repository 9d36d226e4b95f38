/* err.h: the message that goes with a failing -errno. The first function that knows the cause writes
 * the message, with names and numbers, and returns the code; all callers pass the code up and do
 * not change the message. The message belongs to the calling thread; if another thread did the
 * work, its message is returned through a line (fence.h). There is no other state. */
#ifndef CORE_BASE_ERR_H
#define CORE_BASE_ERR_H

enum { CORE_ERR_MESSAGE_BYTES = 1024 };

/* Records the message of this thread and returns `code` (a negative errno), so that a failing
 * function ends in `return core_err_set(-EINVAL, "...", ...)`. It is logged at debug level. A
 * message that is too long is cut at a character boundary and ends in "...". */
int core_err_set(int code, const char *format, ...) __attribute__((format(printf, 2, 3), cold));

/* Prepends "<what>: " to the thread's current error message, for a caller that knows the context
 * (which key, which file) and adds it. Returns `code`. */
int core_err_prefix(int code, const char *format, ...) __attribute__((format(printf, 2, 3), cold));

/* Makes a message that another thread wrote this thread's. It is not logged again. Returns
 * `code`. */
int core_err_adopt(int code, const char *message);

/* The message of this thread's last error; "" when there was none. Valid until the next call of
 * core_err_* on this thread. */
const char *core_err_message(void);

/* A code with its message, kept while a cleanup runs that may fail, too. */
struct core_err {
    int code; /* 0: none */
    char message[CORE_ERR_MESSAGE_BYTES];
};

/* Keeps `rc` (0 or a negative errno) and, if it is an error, the message of this thread. */
struct core_err core_err_keep(int rc);

/* Returns the first of two errors: the kept one, with its message, or `later` if none was kept. So
 * cleanup of a half-made object ends in
 *     const struct core_err kept = core_err_keep(rc);
 *     return core_err_first(&kept, thing_close(thing)); */
int core_err_first(const struct core_err *kept, int later);

#endif
