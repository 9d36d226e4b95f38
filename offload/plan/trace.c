/* trace.c: commands as bars of a Chrome/Perfetto timeline. */
#include "offload/plan/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "offload/plan/sim.h"

enum { EVENT_BYTES = 512, NAME_BYTES = 64 };

/* A block's name as JSON text has it. */
static const char *escape(const char *name, char text[NAME_BYTES])
{
    size_t used = 0;
    for (const char *c = name; *c != '\0' && used + 3 < NAME_BYTES; c++) {
        if (*c == '"' || *c == '\\') {
            text[used++] = '\\';
        }
        text[used++] = (unsigned char)*c < ' ' ? ' ' : *c;
    }
    text[used] = '\0';
    return text;
}

static void put_row(const struct plan_trace_sink *sink, uint32_t rank, enum plan_queue queue)
{
    char text[EVENT_BYTES];
    snprintf(text, sizeof text,
             ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%u,\"tid\":%d,"
             "\"args\":{\"name\":\"%s\"}},\n{\"name\":\"thread_sort_index\",\"ph\":\"M\","
             "\"pid\":%u,\"tid\":%d,\"args\":{\"sort_index\":%d}}",
             rank, queue, plan_queue_name(queue), rank, queue, queue);
    sink->put(sink->user, text);
}

void plan_trace_begin(const struct plan_input *input, const struct plan_trace_sink *sink)
{
    char text[EVENT_BYTES];
    snprintf(text, sizeof text,
             "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{\"name\":\"process_name\","
             "\"ph\":\"M\",\"pid\":%u,\"args\":{\"name\":\"rank %u\"}}",
             input->rank, input->rank);
    sink->put(sink->user, text);
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        put_row(sink, input->rank, (enum plan_queue)q);
    }
}

/* Microseconds with three decimals, and a point in every locale. */
static const char *print_micros(double seconds, char text[32])
{
    const long long ns = llround(fabs(seconds) * 1e9);
    snprintf(text, 32, "%s%lld.%03lld", seconds < 0 ? "-" : "", ns / 1000, ns % 1000);
    return text;
}

static void put_command(const struct plan_input *input, const struct plan_trace_sink *sink,
                        const struct plan_command *command, struct plan_time time)
{
    char name[NAME_BYTES] = "";
    char streams[64];
    char micro[32] = "";
    char begin[32];
    char length[32];
    char text[EVENT_BYTES];
    bool of_block = command->block != PLAN_NONE;
    if (of_block) {
        escape(input->blocks[command->block].name, name);
    }
    if (command->micro != PLAN_NONE) {
        snprintf(micro, sizeof micro, "\"micro\":%u,", command->micro);
    }
    snprintf(text, sizeof text,
             ",\n{\"name\":\"%s%s%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%u,\"tid\":%u,"
             "\"ts\":%s,\"dur\":%s,\"args\":{\"op\":\"%s\",\"block\":\"%s\",%s"
             "\"chunk\":%u,\"streams\":\"%s\",\"bytes\":%" PRIu64 "}}",
             plan_op_name((enum plan_op)command->op), of_block ? " " : "", name,
             plan_queue_name((enum plan_queue)command->queue), input->rank, command->queue,
             print_micros(time.begin_seconds, begin),
             print_micros(time.end_seconds - time.begin_seconds, length),
             plan_op_name((enum plan_op)command->op), name, micro, command->chunk,
             plan_streams_print(command->streams, streams, sizeof streams), command->bytes);
    sink->put(sink->user, text);
}

void plan_trace_tape(const struct plan_input *input, const struct plan_trace_sink *sink,
                     const struct plan_tape *tape, const struct plan_time *times)
{
    for (uint32_t i = 0; i < tape->count; i++) {
        if (tape->commands[i].op != PLAN_JOIN && times[i].end_seconds >= times[i].begin_seconds) {
            put_command(input, sink, &tape->commands[i], times[i]);
        }
    }
}

void plan_trace_end(const struct plan_trace_sink *sink)
{
    sink->put(sink->user, "\n]}\n");
}

/* ---- simulated ---- */

/* The tapes of a run of `steps` steps; returns how many. */
static uint32_t row_of(const struct plan *plan, uint32_t steps, const struct plan_tape **tapes)
{
    enum plan_kind before = PLAN_KIND_COUNT;
    uint32_t count = 0;
    for (uint32_t i = 0; i < steps; i++) {
        bool joins = plan_tape(plan, before, plan_steady(plan)) != NULL;
        enum plan_kind kind = joins ? plan_steady(plan) : PLAN_FIRST;
        tapes[count++] = plan_tape(plan, before, kind);
        before = kind;
    }
    if (steps > 0 && before != PLAN_GUESS && plan_tape(plan, before, PLAN_DRAIN) != NULL) {
        tapes[count++] = plan_tape(plan, before, PLAN_DRAIN);
    }
    return count;
}

int plan_trace_predicted(const struct plan_input *input, const struct plan *plan, uint32_t steps,
                         const struct plan_trace_sink *sink)
{
    const struct plan_tape **tapes = calloc(steps + 1u, sizeof(void *));
    struct plan_time **times = calloc(steps + 1u, sizeof(void *));
    double *ends = calloc(steps + 1u, sizeof *ends);
    int rc = tapes == NULL || times == NULL || ends == NULL ? -ENOMEM : 0;
    uint32_t count = rc == 0 ? row_of(plan, steps, tapes) : 0;
    for (uint32_t t = 0; rc == 0 && t < count; t++) {
        times[t] = calloc(tapes[t]->count, sizeof *times[t]);
        rc = times[t] == NULL ? -ENOMEM : 0;
    }
    if (rc != 0) {
        core_err_set(rc, "no memory for a timeline of %u steps", steps);
    }
    if (rc == 0) {
        rc = plan_sim_run(&input->rates, input->budgets.device_is_host, tapes, count, times, ends);
    }
    if (rc == 0) {
        plan_trace_begin(input, sink);
        for (uint32_t t = 0; t < count; t++) {
            plan_trace_tape(input, sink, tapes[t], times[t]);
        }
        plan_trace_end(sink);
    }
    for (uint32_t t = 0; times != NULL && t < count; t++) {
        free(times[t]);
    }
    free(times);
    free(tapes);
    free(ends);
    return rc;
}
