/* log.h: log messages, which go to a sink that the application chose. The sink is bound to a
 * thread; the threads of a core_queue or core_team inherit the sink of the thread that created
 * them, so two runs in one process can have two sinks, and there is no process-wide state. If no
 * sink is bound, nothing is written. */
#ifndef CORE_BASE_LOG_H
#define CORE_BASE_LOG_H

enum core_log_level { CORE_LOG_ERROR, CORE_LOG_WARN, CORE_LOG_INFO, CORE_LOG_DEBUG };

struct core_log {
    enum core_log_level level; /* messages above this level are dropped */
    /* Receives one line without its newline. Any thread that inherited the binding may call it,
     * even several at once. It must not call back into tide. */
    void (*write)(void *user, enum core_log_level level, const char *line);
    void *user; /* borrowed from the application */
};

/* Binds a sink to this thread; NULL unbinds. `sink` is borrowed and must outlive its use. */
void core_log_bind(const struct core_log *sink);
const struct core_log *core_log_bound(void);

void core_log(enum core_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Returns "error", "warn", "info" or "debug". */
const char *core_log_level_name(enum core_log_level level);

#endif
