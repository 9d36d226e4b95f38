/* trace.c: arrays of events, and their JSON. */
#include "core/base/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/json_write.h"
#include "core/base/log.h"

enum { TRACKS_MAX = 4096, EVENTS_MAX = 1 << 24 };

struct event {
    int64_t now_ns;
    const struct core_trace_kind *kind; /* borrowed: a constant */
    struct core_trace_numbers numbers;
    enum core_trace_phase phase;
};

struct core_trace_track {
    char name[CORE_TRACE_TRACK_BYTES];
    uint32_t group;
    uint32_t events_max;
    uint32_t count; /* written by the recording thread */
    _Atomic uint64_t dropped;
    struct event *events; /* borrowed: part of the trace's */
};

struct core_trace {
    uint32_t tracks_max;
    _Atomic uint32_t taken; /* tracks, may pass tracks_max */
    struct event *events;   /* owned, [tracks_max * events_max] */
    struct core_trace_track tracks[];
};

int core_trace_create(uint32_t tracks_max, uint32_t events_max, struct core_trace **out)
{
    if (tracks_max == 0 || tracks_max > TRACKS_MAX || events_max == 0 || events_max > EVENTS_MAX) {
        return core_err_set(-EINVAL,
                            "a trace of %u tracks of %u events is not possible; %d of %d are",
                            tracks_max, events_max, TRACKS_MAX, EVENTS_MAX);
    }
    struct core_trace *trace = calloc(1,
                                      sizeof *trace + tracks_max * sizeof(struct core_trace_track));
    struct event *events = calloc((size_t)tracks_max * events_max, sizeof *events);
    if (trace == NULL || events == NULL) {
        free(trace);
        free(events);
        return core_err_set(-ENOMEM, "no memory for a trace of %u tracks of %u events", tracks_max,
                            events_max);
    }
    trace->tracks_max = tracks_max;
    trace->events = events;
    for (uint32_t i = 0; i < tracks_max; i++) {
        trace->tracks[i].events = events + (size_t)i * events_max;
        trace->tracks[i].events_max = events_max;
    }
    *out = trace;
    return 0;
}

void core_trace_destroy(struct core_trace *trace)
{
    if (trace != NULL) {
        free(trace->events);
        free(trace);
    }
}

struct core_trace_track *core_trace_track_take(struct core_trace *trace, uint32_t group,
                                               const char *name)
{
    if (trace == NULL) {
        return NULL;
    }
    uint32_t index = atomic_fetch_add_explicit(&trace->taken, 1, memory_order_relaxed);
    if (index >= trace->tracks_max) {
        atomic_store_explicit(&trace->taken, trace->tracks_max, memory_order_relaxed);
        core_log(CORE_LOG_WARN, "the trace has its %u tracks; %s is not traced", trace->tracks_max,
                 name);
        return NULL;
    }
    struct core_trace_track *track = &trace->tracks[index];
    track->group = group;
    snprintf(track->name, sizeof track->name, "%s", name);
    return track;
}

void core_trace_at(struct core_trace_track *track, enum core_trace_phase phase,
                   const struct core_trace_kind *kind, struct core_trace_numbers numbers,
                   int64_t now_ns)
{
    if (track == NULL) {
        return;
    }
    if (track->count == track->events_max) {
        atomic_fetch_add_explicit(&track->dropped, 1, memory_order_relaxed);
        return;
    }
    track->events[track->count] = (struct event){now_ns, kind, numbers, phase};
    track->count++;
}

void core_trace_now(struct core_trace_track *track, enum core_trace_phase phase,
                    const struct core_trace_kind *kind, struct core_trace_numbers numbers)
{
    core_trace_at(track, phase, kind, numbers, core_clock_now_ns());
}

/* ---- writing -----------------------------------------------------------------------------------*/

static uint32_t track_count(const struct core_trace *trace)
{
    uint32_t taken = atomic_load_explicit(&trace->taken, memory_order_relaxed);
    return taken < trace->tracks_max ? taken : trace->tracks_max;
}

uint64_t core_trace_dropped(const struct core_trace *trace)
{
    uint64_t dropped = 0;
    for (uint32_t i = 0; i < track_count(trace); i++) {
        dropped += atomic_load_explicit(&trace->tracks[i].dropped, memory_order_relaxed);
    }
    return dropped;
}

static int64_t first_ns(const struct core_trace *trace)
{
    int64_t first = INT64_MAX;
    for (uint32_t i = 0; i < track_count(trace); i++) {
        const struct core_trace_track *track = &trace->tracks[i];
        if (track->count > 0 && track->events[0].now_ns < first) {
            first = track->events[0].now_ns;
        }
    }
    return first;
}

static void write_track_name(struct core_json_write *write, uint32_t row,
                             const struct core_trace_track *track)
{
    core_json_write_object_begin(write, NULL);
    core_json_write_string(write, "name", "thread_name");
    core_json_write_string(write, "ph", "M");
    core_json_write_unsigned(write, "pid", track->group);
    core_json_write_unsigned(write, "tid", row);
    core_json_write_object_begin(write, "args");
    core_json_write_string(write, "name", track->name);
    core_json_write_object_end(write);
    core_json_write_object_end(write);
}

static void write_event(struct core_json_write *write, uint32_t row,
                        const struct core_trace_track *track, const struct event *event,
                        int64_t start_ns)
{
    static const char *const letters[] = {"B", "E", "i", "C"};
    core_json_write_object_begin(write, NULL);
    core_json_write_string(write, "name", event->kind->name);
    core_json_write_string(write, "cat", event->kind->category);
    core_json_write_string(write, "ph", letters[event->phase]);
    core_json_write_real(write, "ts", (double)(event->now_ns - start_ns) / 1000.0);
    core_json_write_unsigned(write, "pid", track->group);
    core_json_write_unsigned(write, "tid", row);
    if (event->phase == CORE_TRACE_INSTANT) {
        core_json_write_string(write, "s", "t");
    }
    if (event->kind->numbers[0] != NULL && event->phase != CORE_TRACE_END) {
        core_json_write_object_begin(write, "args");
        for (size_t i = 0; i < CORE_TRACE_NUMBERS_MAX && event->kind->numbers[i] != NULL; i++) {
            core_json_write_integer(write, event->kind->numbers[i], event->numbers.value[i]);
        }
        core_json_write_object_end(write);
    }
    core_json_write_object_end(write);
}

/* Begins and ends in pairs, whatever was recorded. */
static void write_track(struct core_json_write *write, uint32_t row,
                        const struct core_trace_track *track, int64_t start_ns)
{
    write_track_name(write, row, track);
    uint32_t depth = 0;
    struct event last = {0};
    for (uint32_t i = 0; i < track->count; i++) {
        const struct event *event = &track->events[i];
        last = *event;
        if (event->phase == CORE_TRACE_END && depth == 0) {
            continue;
        }
        depth += event->phase == CORE_TRACE_BEGIN;
        depth -= event->phase == CORE_TRACE_END;
        write_event(write, row, track, event, start_ns);
    }
    last.phase = CORE_TRACE_END;
    for (; depth > 0; depth--) {
        write_event(write, row, track, &last, start_ns);
    }
}

static int write_all(const struct core_trace *trace, FILE *file)
{
    struct core_json_write write;
    core_json_write_init_file(&write, file);
    write.indent = 0;
    core_json_write_object_begin(&write, NULL);
    core_json_write_string(&write, "displayTimeUnit", "ns");
    core_json_write_object_begin(&write, "otherData");
    core_json_write_unsigned(&write, "dropped_events", core_trace_dropped(trace));
    core_json_write_object_end(&write);
    core_json_write_array_begin(&write, "traceEvents");
    int64_t start_ns = first_ns(trace);
    for (uint32_t i = 0; i < track_count(trace); i++) {
        write_track(&write, i, &trace->tracks[i], start_ns);
    }
    core_json_write_array_end(&write);
    core_json_write_object_end(&write);
    int rc = core_json_write_end(&write);
    core_json_write_fini(&write);
    return rc;
}

int core_trace_write(const struct core_trace *trace, const char *path)
{
    FILE *file = fopen(path, "we");
    if (file == NULL) {
        int code = -errno;
        return core_err_set(code, "the trace %s cannot be written: %s", path, strerror(-code));
    }
    int rc = write_all(trace, file);
    if (fclose(file) != 0 && rc == 0) {
        rc = core_err_set(-errno, "the trace %s cannot be written: %s", path, strerror(errno));
    }
    uint64_t dropped = core_trace_dropped(trace);
    if (dropped > 0) {
        core_log(CORE_LOG_WARN, "the trace %s lacks %" PRIu64 " events: tracks were full", path,
                 dropped);
    }
    return rc;
}
