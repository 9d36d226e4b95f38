/* log.h: log messages go to a sink that the application binds to a thread. The threads of a
 * core_queue, core_team or coll_peers inherit their creator's sink, so runs in one process can have
 * different sinks. Without a sink, nothing is written. */
#ifndef CORE_BASE_LOG_H
#define CORE_BASE_LOG_H

enum core_log_level { CORE_LOG_ERROR, CORE_LOG_WARN, CORE_LOG_INFO, CORE_LOG_DEBUG };

struct core_log {
    enum core_log_level level; /* messages above this level are dropped */
    /* Receives a line without its newline. Threads may call it at the same time. The function must
     * not call tide. */
    void (*write)(void *user, enum core_log_level level, const char *line);
    void *user; /* borrowed from the application */
};

/* Binds a sink to this thread; NULL: none. The sink must outlive the binding and the threads that
 * inherit it. */
void core_log_bind(const struct core_log *sink);
const struct core_log *core_log_bound(void);

void core_log(enum core_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Returns "error", "warn", "info" or "debug". */
const char *core_log_level_name(enum core_log_level level);

#endif
