/* finetune_events.h: events between two steps: warnings, saves, resumes. Kept until the log writes
 * them. Any thread. */
#ifndef TOOLS_TIDE_FINETUNE_EVENTS_H
#define TOOLS_TIDE_FINETUNE_EVENTS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

struct core_json_write;

/* Further events between two steps are counted but not kept. */
enum { TUNE_EVENTS_MAX = 32, TUNE_EVENT_BYTES = 320 };

enum tune_event_kind {
    TUNE_EVENT_RESUMED,
    TUNE_EVENT_SAVE,
    TUNE_EVENT_WARNING,
    TUNE_EVENT_ERROR,
};

struct tune_event {
    enum tune_event_kind kind;
    char text[TUNE_EVENT_BYTES];
};

struct tune_events {
    pthread_mutex_t lock;
    struct tune_event kept[TUNE_EVENTS_MAX];
    size_t count;
    uint64_t lost;
};

void tune_events_init(struct tune_events *events);
void tune_events_fini(struct tune_events *events);

/* Adds an event; a text that is too long is cut. `events` may be NULL. */
void tune_events_add(struct tune_events *events, enum tune_event_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Writes the kept events as member "events" of the open object and forgets them; writes nothing if
 * there are none. */
void tune_events_write(struct tune_events *events, struct core_json_write *json);

#endif
