/* log.h: lines of talk, handed to a sink that the application chose.
 * The sink is bound to a thread; threads that tide starts inherit the binding of the thread that
 * created them (core_queue, core_team), so two runs in one process talk to two sinks and there is
 * no process-wide state. With no sink bound, nothing is written. */
#ifndef CORE_BASE_LOG_H
#define CORE_BASE_LOG_H

enum core_log_level { CORE_LOG_ERROR, CORE_LOG_WARN, CORE_LOG_INFO, CORE_LOG_DEBUG };

struct core_log {
    enum core_log_level level; /* lines above this level are dropped */
    /* Gets one line without its newline. Called from any thread that inherited the binding, so it
     * has to be safe for that; it must not call back into tide. */
    void (*write)(void *user, enum core_log_level level, const char *line);
    void *user; /* borrowed from the application */
};

/* Binds a sink to this thread; NULL unbinds. `sink` stays the caller's and outlives its use. */
void core_log_bind(const struct core_log *sink);
const struct core_log *core_log_bound(void);

void core_log(enum core_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* "error", "warn", "info", "debug". */
const char *core_log_level_name(enum core_log_level level);

#endif
