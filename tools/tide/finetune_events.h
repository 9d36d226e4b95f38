/* finetune_events.h: warnings, errors, saves and resumes, kept until the log writes them. Any
 * thread. */
#ifndef TOOLS_TIDE_FINETUNE_EVENTS_H
#define TOOLS_TIDE_FINETUNE_EVENTS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

struct core_json_write;

/* Further events are only counted. */
enum { FINETUNE_EVENTS_MAX = 32, FINETUNE_EVENT_BYTES = 320 };

enum finetune_event_kind {
    FINETUNE_EVENT_RESUMED,
    FINETUNE_EVENT_SAVE,
    FINETUNE_EVENT_WARNING,
    FINETUNE_EVENT_ERROR,
};

struct finetune_event {
    enum finetune_event_kind kind;
    char text[FINETUNE_EVENT_BYTES];
};

struct finetune_events {
    pthread_mutex_t lock;
    struct finetune_event kept[FINETUNE_EVENTS_MAX];
    size_t count;
    uint64_t lost;
};

void finetune_events_init(struct finetune_events *events);
void finetune_events_fini(struct finetune_events *events);

/* Adds an event; a long text is cut. `events` may be NULL. */
void finetune_events_add(struct finetune_events *events, enum finetune_event_kind kind,
                         const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Moves the kept events to the member "events" of the open object, if there are any. */
void finetune_events_write(struct finetune_events *events, struct core_json_write *json);

#endif
