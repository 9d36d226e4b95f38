/* err.h: the message that goes with a failing -errno. The first function that knows the cause
 * writes the message, with names and numbers, and returns the code; all callers pass the code up
 * and do not change the message. The message belongs to the calling thread. If another thread did
 * the work, a line (fence.h) carries its message to the waiting thread. There is no other state. */
#ifndef CORE_BASE_ERR_H
#define CORE_BASE_ERR_H

enum { CORE_ERR_MESSAGE_BYTES = 1024 };

/* Records the message of this thread, logs it at debug level, and returns `code` (a negative
 * errno), so that a failing function can end with `return core_err_set(-EINVAL, "...", ...)`. A
 * message that is too long is cut at a character boundary and ends in "...". */
int core_err_set(int code, const char *format, ...) __attribute__((format(printf, 2, 3), cold));

/* Prepends "<what>: " to the thread's current error message, for a caller that knows the context
 * (which key, which file). Returns `code`. */
int core_err_prefix(int code, const char *format, ...) __attribute__((format(printf, 2, 3), cold));

/* Sets this thread's message to one that another thread wrote or that was kept. Does not log it.
 * Returns `code`. */
int core_err_adopt(int code, const char *message);

/* Returns the message of this thread's last error; "" if there was none. Valid until the next call
 * of core_err_* on this thread. */
const char *core_err_message(void);

/* An error code and its message, kept during a cleanup that may itself fail. */
struct core_err {
    int code; /* 0: no error */
    char message[CORE_ERR_MESSAGE_BYTES];
};

/* Keeps `rc` (0 or a negative errno) and, if it is an error, the message of this thread. */
struct core_err core_err_keep(int rc);

/* Returns the first of two errors: the kept one, with its message, or `later` if none was kept. So
 * cleanup of a half-made object ends with
 *     const struct core_err kept = core_err_keep(rc);
 *     return core_err_first(&kept, thing_close(thing)); */
int core_err_first(const struct core_err *kept, int later);

#endif
