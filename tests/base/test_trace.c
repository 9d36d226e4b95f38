/* Proves traces: the file is JSON with every event in order, pairs match, nothing is lost silently. */
#include <errno.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/team.h"
#include "core/base/trace.h"
#include "tests/harness/heard.h"
#include "tests/harness/test.h"

static const struct core_trace_kind kind_read = {"store", "READ", {"bytes", "chunk"}};
static const struct core_trace_kind kind_odd = {"a \"quoted\"", "new\nline", {NULL}};
static const struct core_trace_kind kind_depth = {"store", "depth", {"queued"}};
static const struct core_trace_numbers none;

static char *written(const struct core_trace *trace)
{
    const char *path = test_file("trace.json", "", 0);
    check_int(core_trace_write(trace, path), ==, 0);
    static char text[1 << 16];
    FILE *file = fopen(path, "re");
    check_true(file != NULL);
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    struct core_json *json = NULL;
    check_int(core_json_parse(text, length, "trace.json", NULL, &json), ==, 0);
    core_json_destroy(json);
    return text;
}

/* All four phases, numbers by name, awkward names, times from the first event, one row a track. */
static void events_are_written(void)
{
    struct core_trace *trace = NULL;
    check_int(core_trace_create(2, 16, &trace), ==, 0);
    struct core_trace_track *read = core_trace_track_take(trace, 3, "store-read");
    struct core_trace_track *other = core_trace_track_take(trace, 0, "q\t2");
    core_trace_at(read, CORE_TRACE_BEGIN, &kind_read, (struct core_trace_numbers){{4096, 7}}, 1000);
    core_trace_at(read, CORE_TRACE_END, &kind_read, none, 3500);
    core_trace_at(other, CORE_TRACE_INSTANT, &kind_odd, none, 2000);
    core_trace_at(other, CORE_TRACE_COUNTER, &kind_depth, (struct core_trace_numbers){{-5}}, 2001);
    const char *text = written(trace);
    check_contains(text, "\"thread_name\"");
    check_contains(text, "store-read");
    check_contains(text, "\"READ\"");
    check_contains(text, "4096");
    check_contains(text, "new\\nline");
    check_contains(text, "a \\\"quoted\\\"");
    check_contains(text, "-5");
    check_contains(text, "2.5");
    check_contains(text, "1.001");
    check_int(core_trace_dropped(trace), ==, 0);
    core_trace_destroy(trace);
    core_trace_destroy(NULL);
}

static unsigned count_of(const char *text, const char *part)
{
    unsigned count = 0;
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) {
        count++;
    }
    return count;
}

/* A full track drops, counts and says so; begins that lost their end are closed. */
static void full_tracks_say_so(void)
{
    test_listen(CORE_LOG_WARN);
    struct core_trace *trace = NULL;
    check_int(core_trace_create(1, 5, &trace), ==, 0);
    struct core_trace_track *track = core_trace_track_take(trace, 0, "only");
    check_true(core_trace_track_take(trace, 0, "more") == NULL);
    check_true(core_trace_track_take(trace, 0, "and more") == NULL);
    check_int(test_heard_lines(""), ==, 2);
    core_trace(track, CORE_TRACE_END, &kind_read, none);
    for (int i = 0; i < 4; i++) {
        core_trace(track, CORE_TRACE_BEGIN, &kind_read, none);
    }
    for (int i = 0; i < 4; i++) {
        core_trace(track, CORE_TRACE_END, &kind_read, none);
    }
    check_int(core_trace_dropped(trace), ==, 4);
    const char *text = written(trace);
    check_int(test_heard_lines(""), ==, 3);
    check_contains(text, "\"dropped_events\"");
    check_int(count_of(text, "\"B\""), ==, 4);
    check_int(count_of(text, "\"E\""), ==, 4);
    core_trace_destroy(trace);
    test_listen_end();
}

static void record_part(void *argument, unsigned index, unsigned count)
{
    struct core_trace_track *track = core_trace_track_take(argument, index, "member");
    (void)count;
    for (int i = 0; i < 40; i++) {
        core_trace_now(track, i % 2 == 0 ? CORE_TRACE_BEGIN : CORE_TRACE_END, &kind_read,
                       (struct core_trace_numbers){{i}});
    }
}

/* Threads record on their own tracks at once; nothing is lost. */
static void threads_have_tracks(void)
{
    struct core_trace *trace = NULL;
    struct core_team *team = NULL;
    check_int(core_trace_create(4, 40, &trace), ==, 0);
    check_int(core_team_create(&(struct core_team_options){.count = 4}, &team), ==, 0);
    core_team_run(team, record_part, trace);
    core_team_destroy(team);
    check_int(core_trace_dropped(trace), ==, 0);
    const char *text = written(trace);
    check_int(count_of(text, "\"B\""), ==, 80);
    check_int(count_of(text, "\"E\""), ==, 80);
    core_trace_destroy(trace);
}

/* Off is NULL everywhere; an empty trace is a file too; bad sizes and paths are refused. */
static void off_and_refused(void)
{
    check_true(core_trace_track_take(NULL, 0, "off") == NULL);
    core_trace(NULL, CORE_TRACE_BEGIN, &kind_read, none);
    core_trace_at(NULL, CORE_TRACE_BEGIN, &kind_read, none, 1);
    struct core_trace *trace = NULL;
    check_int(core_trace_create(0, 5, &trace), ==, -EINVAL);
    check_int(core_trace_create(5, 0, &trace), ==, -EINVAL);
    check_int(core_trace_create(5000, 5, &trace), ==, -EINVAL);
    check_contains(core_err_sentence(), "5000 tracks of 5 events");
    check_int(core_trace_create(5, UINT32_MAX, &trace), ==, -EINVAL);
    check_int(core_trace_create(1, 1, &trace), ==, 0);
    check_contains(written(trace), "traceEvents");
    check_int(core_trace_write(trace, "/no/such/folder/t.json"), ==, -ENOENT);
    check_contains(core_err_sentence(), "/no/such/folder/t.json cannot be written");
    check_int(core_trace_write(trace, "/dev/full"), !=, 0);
    core_trace_destroy(trace);
}

TEST_MAIN({"events_are_written", events_are_written}, {"full_tracks_say_so", full_tracks_say_so},
          {"threads_have_tracks", threads_have_tracks}, {"off_and_refused", off_and_refused})
