/* trace.h: what each queue did and when, kept in memory and written as a Chrome/Perfetto file.
 * A trace has a fixed number of tracks, a track a fixed number of events; both are allocated at
 * create. One thread at a time records on a track. A track that is NULL records nothing, so tracing
 * that is off costs a branch. A full track drops what comes later and counts it. */
#ifndef CORE_BASE_TRACE_H
#define CORE_BASE_TRACE_H

#include <stddef.h>
#include <stdint.h>

struct core_trace;
struct core_trace_track;

enum { CORE_TRACE_NUMBERS_MAX = 3, CORE_TRACE_TRACK_BYTES = 48 };

enum core_trace_phase {
    CORE_TRACE_BEGIN,
    CORE_TRACE_END,
    CORE_TRACE_INSTANT,
    CORE_TRACE_COUNTER, /* each named number is a series */
};

/* What can happen: a constant in the room that records it. Kept by address. */
struct core_trace_kind {
    const char *category;                        /* "store", "update" ... */
    const char *name;                            /* "READ", "FWD" ... */
    const char *numbers[CORE_TRACE_NUMBERS_MAX]; /* their names; NULL: not used */
};

struct core_trace_numbers {
    int64_t value[CORE_TRACE_NUMBERS_MAX];
};

/* `tracks_max` 1 to 4096, `events_max` 1 to 2^24 a track. */
int core_trace_create(uint32_t tracks_max, uint32_t events_max, struct core_trace **out);
/* Tracks end with it. NULL is fine. */
void core_trace_destroy(struct core_trace *trace);

/* A row of the picture: `group` is the rank, `name` the queue. Any thread. NULL where `trace` is
 * NULL or has all its tracks, which is one warning. */
struct core_trace_track *core_trace_track_take(struct core_trace *trace, uint32_t group,
                                               const char *name);

/* Records at a given time, for timelines that are computed. Times of a track do not fall. */
void core_trace_at(struct core_trace_track *track, enum core_trace_phase phase,
                   const struct core_trace_kind *kind, struct core_trace_numbers numbers,
                   int64_t now_ns);

/* Records now (core_clock_now_ns). */
void core_trace_now(struct core_trace_track *track, enum core_trace_phase phase,
                    const struct core_trace_kind *kind, struct core_trace_numbers numbers);

static inline void core_trace(struct core_trace_track *track, enum core_trace_phase phase,
                              const struct core_trace_kind *kind, struct core_trace_numbers numbers)
{
    if (track != NULL) {
        core_trace_now(track, phase, kind, numbers);
    }
}

/* Events that full tracks did not keep. Any thread. */
uint64_t core_trace_dropped(const struct core_trace *trace);

/* Writes the file, times counted from the first event. While it runs no track records. Begins
 * without an end are ended at the last time, ends without a begin left out. Dropped events are told
 * in the file and as a warning. */
int core_trace_write(const struct core_trace *trace, const char *path);

#endif
