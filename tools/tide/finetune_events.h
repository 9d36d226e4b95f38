/* finetune_events.h: what happened between two steps and is no figure: warnings, saves, where a run
 * was taken up again. Kept until the log takes it. Any thread. */
#ifndef TOOLS_TIDE_FINETUNE_EVENTS_H
#define TOOLS_TIDE_FINETUNE_EVENTS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

struct core_json_write;

/* More than so many of them between two steps are counted and not kept. */
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

/* A longer text is cut. NULL is fine: nobody wants to know. */
void tune_events_add(struct tune_events *events, enum tune_event_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* All that was kept as member "events" of the object that is open, and forgets it; writes nothing
 * where nothing happened. */
void tune_events_write(struct tune_events *events, struct core_json_write *json);

#endif
