/* finetune_events.c: a list under a lock. */
#include "tools/tide/finetune_events.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "core/json/write.h"

static const char *const kinds[] = {
    [FINETUNE_EVENT_RESUMED] = "resumed",
    [FINETUNE_EVENT_SAVE] = "save",
    [FINETUNE_EVENT_WARNING] = "warning",
    [FINETUNE_EVENT_ERROR] = "error",
};

void finetune_events_init(struct finetune_events *events)
{
    events->count = 0;
    events->lost = 0;
    pthread_mutex_init(&events->lock, NULL);
}

void finetune_events_fini(struct finetune_events *events)
{
    pthread_mutex_destroy(&events->lock);
}

void finetune_events_add(struct finetune_events *events, enum finetune_event_kind kind,
                         const char *format, ...)
{
    if (events == NULL) {
        return;
    }
    pthread_mutex_lock(&events->lock);
    if (events->count == FINETUNE_EVENTS_MAX) {
        events->lost++;
    } else {
        struct finetune_event *event = &events->kept[events->count++];
        va_list list;
        event->kind = kind;
        va_start(list, format);
        vsnprintf(event->text, sizeof event->text, format, list);
        va_end(list);
    }
    pthread_mutex_unlock(&events->lock);
}

static void write_event(struct core_json_write *json, const char *kind, const char *text)
{
    core_json_write_object_begin(json, NULL);
    core_json_write_string(json, "kind", kind);
    core_json_write_string(json, "text", text);
    core_json_write_object_end(json);
}

void finetune_events_write(struct finetune_events *events, struct core_json_write *json)
{
    if (events == NULL) {
        return;
    }
    pthread_mutex_lock(&events->lock);
    if (events->count > 0) {
        core_json_write_array_begin(json, "events");
        for (size_t i = 0; i < events->count; i++) {
            write_event(json, kinds[events->kept[i].kind], events->kept[i].text);
        }
        if (events->lost > 0) {
            char text[64];
            snprintf(text, sizeof text, "%" PRIu64 " more in this step", events->lost);
            write_event(json, kinds[FINETUNE_EVENT_WARNING], text);
        }
        core_json_write_array_end(json);
    }
    events->count = 0;
    events->lost = 0;
    pthread_mutex_unlock(&events->lock);
}
