/* heard.c: keeps the lines in one text, which a lock protects. */
#include "tests/harness/heard.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static char text[1 << 16];
static size_t text_bytes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Drops a line that does not fit. */
static void keep(void *user, enum core_log_level level, const char *line)
{
    (void)user;
    (void)level;
    pthread_mutex_lock(&lock);
    const size_t room = sizeof text - text_bytes;
    const size_t bytes = strlen(line) + 1;
    if (bytes < room) {
        snprintf(text + text_bytes, room, "%s\n", line);
        text_bytes += bytes;
    }
    pthread_mutex_unlock(&lock);
}

void test_listen(enum core_log_level level)
{
    static const struct core_log sinks[] = {
        [CORE_LOG_ERROR] = {.level = CORE_LOG_ERROR, .write = keep},
        [CORE_LOG_WARN] = {.level = CORE_LOG_WARN, .write = keep},
        [CORE_LOG_INFO] = {.level = CORE_LOG_INFO, .write = keep},
        [CORE_LOG_DEBUG] = {.level = CORE_LOG_DEBUG, .write = keep},
    };
    core_log_bind(NULL); /* this thread must not log while the text is emptied */
    text[0] = '\0';
    text_bytes = 0;
    core_log_bind(&sinks[level]);
}

void test_listen_end(void)
{
    core_log_bind(NULL);
}

const char *test_heard(void)
{
    return text;
}

unsigned test_heard_lines(const char *part)
{
    unsigned count = 0;
    pthread_mutex_lock(&lock);
    for (const char *at = text, *end; (end = strchr(at, '\n')) != NULL; at = end + 1) {
        const size_t bytes = strlen(part);
        count += bytes == 0 || memmem(at, (size_t)(end - at), part, bytes) != NULL;
    }
    pthread_mutex_unlock(&lock);
    return count;
}
