/* err.h: the message of a failing -errno. The first function that knows the cause writes the
 * message; its callers pass the code up. The message belongs to the thread; a line (fence.h)
 * carries it to waiting threads. */
#ifndef CORE_BASE_ERR_H
#define CORE_BASE_ERR_H

enum { CORE_ERR_MESSAGE_BYTES = 1024 };

/* Records this thread's message, logs it at debug level, and returns `code`, a negative errno. A
 * message that is too long is cut and ends in "...". */
int core_err_set(int code, const char *format, ...) __attribute__((format(printf, 2, 3), cold));

/* Prepends the formatted text (which key, which file) and ": " to this thread's message. Returns
 * `code`. */
int core_err_prefix(int code, const char *format, ...) __attribute__((format(printf, 2, 3), cold));

/* Sets this thread's message to one from another thread, or a kept one, without logging it. Returns
 * `code`. */
int core_err_adopt(int code, const char *message);

/* Returns this thread's last message; "" if there was none. Valid until this thread's next call of
 * core_err_*. */
const char *core_err_message(void);

/* An error that is kept during a cleanup, which may itself fail. */
struct core_err {
    int code; /* 0: no error */
    char message[CORE_ERR_MESSAGE_BYTES];
};

/* Keeps `rc`, 0 or a negative errno, with this thread's message. */
struct core_err core_err_keep(int rc);

/* Returns the first of two errors: the kept one, with its message, or `later` if none was kept. So
 * cleanup of a half-made object ends with
 *     const struct core_err kept = core_err_keep(rc);
 *     return core_err_first(&kept, thing_close(thing)); */
int core_err_first(const struct core_err *kept, int later);

#endif
