/* trace.c: writes commands as bars of a Chrome/Perfetto timeline. */
#include "offload/plan/trace.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "offload/plan/sim.h"

enum { EVENT_BYTES = 2048, NAME_BYTES = 512 /* escaped */ };
enum { OPS_ROW = PLAN_Q_COUNT, OP_NAMES_MAX = 128 };
/* tapes under way at the same time; the executor starts no third one */
enum { UNDER_WAY_MAX = 2 };

/* ---- file ---- */

struct writing {
    FILE *file;
    const char *path; /* borrowed */
    int error;        /* the first errno; 0: none */
};

static void write_text(struct writing *writing, const char *text)
{
    if (fputs(text, writing->file) < 0 && writing->error == 0) {
        writing->error = errno;
    }
}

static int open_file(const char *path, struct writing *out)
{
    *out = (struct writing){.path = path};
    return core_file_open_output(path, false, &out->file);
}

/* An incomplete regular file is removed, because it is not valid JSON. */
static int close_file(struct writing *writing)
{
    struct stat info;
    const bool regular = fstat(fileno(writing->file), &info) == 0 && S_ISREG(info.st_mode);
    if (fclose(writing->file) != 0 && writing->error == 0) {
        writing->error = errno;
    }
    if (writing->error != 0 && regular) {
        (void)unlink(writing->path);
    }
    return writing->error == 0
               ? 0
               : core_err_set(-writing->error, "the timeline %s cannot be written: %s",
                              writing->path, strerror(writing->error));
}

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

/* Viewers sort rows by `order`. */
static void write_row(struct writing *writing, uint32_t rank, int row, const char *name, int order)
{
    char text[EVENT_BYTES];
    snprintf(text, sizeof text,
             ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%u,\"tid\":%d,"
             "\"args\":{\"name\":\"%s\"}},\n{\"name\":\"thread_sort_index\",\"ph\":\"M\","
             "\"pid\":%u,\"tid\":%d,\"args\":{\"sort_index\":%d}}",
             rank, row, name, rank, row, order);
    write_text(writing, text);
}

static void write_head(const struct plan_input *input, struct writing *writing)
{
    char text[EVENT_BYTES];
    snprintf(text, sizeof text,
             "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{\"name\":\"process_name\","
             "\"ph\":\"M\",\"pid\":%u,\"args\":{\"name\":\"rank %u\"}}",
             input->rank, input->rank);
    write_text(writing, text);
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        write_row(writing, input->rank, q, plan_queue_name((enum plan_queue)q), 2 * q);
    }
}

/* Prints microseconds with a point in every locale. */
static const char *print_micros(double seconds, char text[32])
{
    const long long ns = llround(fabs(seconds) * 1e9);
    snprintf(text, 32, "%s%lld.%03lld", seconds < 0 ? "-" : "", ns / 1000, ns % 1000);
    return text;
}

static void write_command(const struct plan_input *input, struct writing *writing,
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
    write_text(writing, text);
}

/* Leaves out JOINs, and commands that end before they begin: these did not run. */
static void write_tape(const struct plan_input *input, struct writing *writing,
                       const struct plan_tape *tape, const struct plan_time *times)
{
    for (uint32_t i = 0; i < tape->count; i++) {
        if (tape->commands[i].op != PLAN_JOIN && times[i].end_seconds >= times[i].begin_seconds) {
            write_command(input, writing, &tape->commands[i], times[i]);
        }
    }
}

/* ---- timelines of measured steps ---- */

struct recorded {
    const struct plan_tape *tape; /* borrowed from the plan; NULL: not pushed yet */
    struct plan_time *times;      /* owned, [commands_max] */
};

struct recorded_op {
    const char *name; /* borrowed from the device's table */
    int64_t begin_ns;
    int64_t end_ns;
};

struct plan_trace {
    struct recorded_op *ops;    /* owned, [PLAN_TRACE_OPS_MAX] */
    _Atomic uint32_t ops_count; /* written with release by the thread that reports ops */
    uint64_t first;
    uint64_t pushed;
    uint32_t count;
    uint32_t commands_max;
    int64_t start_ns; /* the origin of times; 0: no tape yet */
    struct recorded recorded[];
};

int plan_trace_create(uint64_t first, uint32_t tapes, uint32_t commands_max,
                      struct plan_trace **out)
{
    struct plan_trace *trace = calloc(1, sizeof *trace + tapes * sizeof trace->recorded[0]);
    if (trace == NULL) {
        return core_err_set(-ENOMEM, "no memory for a timeline");
    }
    trace->first = first;
    trace->count = tapes;
    trace->ops = malloc(PLAN_TRACE_OPS_MAX * sizeof *trace->ops);
    if (trace->ops == NULL) {
        plan_trace_destroy(trace);
        return core_err_set(-ENOMEM, "no memory for the ops of a timeline");
    }
    trace->commands_max = commands_max;
    for (uint32_t i = 0; i < tapes; i++) {
        struct recorded *one = &trace->recorded[i];
        one->times = calloc(commands_max > 0 ? commands_max : 1, sizeof *one->times);
        if (one->times == NULL) {
            plan_trace_destroy(trace);
            return core_err_set(-ENOMEM, "no memory for a timeline of %u commands", commands_max);
        }
        for (uint32_t c = 0; c < commands_max; c++) {
            one->times[c] = (struct plan_time){.begin_seconds = 1, .end_seconds = 0}; /* not run */
        }
    }
    *out = trace;
    return 0;
}

void plan_trace_destroy(struct plan_trace *trace)
{
    if (trace == NULL) {
        return;
    }
    for (uint32_t i = 0; i < trace->count; i++) {
        free(trace->recorded[i].times);
    }
    free(trace->ops);
    free(trace);
}

static struct recorded *find_tape(struct plan_trace *trace, uint64_t tape)
{
    return tape >= trace->first && tape - trace->first < trace->count
               ? &trace->recorded[tape - trace->first]
               : NULL;
}

void plan_trace_push(struct plan_trace *trace, const struct plan_tape *tape)
{
    struct recorded *one = find_tape(trace, trace->pushed++);
    assert(tape->count <= trace->commands_max);
    if (one != NULL) {
        one->tape = tape;
        trace->start_ns = trace->start_ns != 0 ? trace->start_ns : core_clock_now_ns();
    }
}

void plan_trace_withdraw(struct plan_trace *trace)
{
    struct recorded *one = find_tape(trace, --trace->pushed);
    if (one != NULL) {
        one->tape = NULL;
    }
}

void plan_trace_watch(void *user, uint64_t tape, const struct plan_command *command,
                      int64_t begin_ns, int64_t end_ns)
{
    struct plan_trace *trace = user;
    struct recorded *one = find_tape(trace, tape);
    if (one == NULL || one->tape == NULL) {
        return;
    }
    one->times[command - one->tape->commands] = (struct plan_time){
        .begin_seconds = (double)(begin_ns - trace->start_ns) * 1e-9,
        .end_seconds = (double)(end_ns - trace->start_ns) * 1e-9};
}

bool plan_trace_wants_ops(const struct plan_trace *trace)
{
    return trace->pushed > trace->first &&
           trace->pushed < trace->first + trace->count + UNDER_WAY_MAX;
}

void plan_trace_op(void *user, const char *op, int64_t begin_ns, int64_t end_ns)
{
    struct plan_trace *trace = user;
    const uint32_t count = atomic_load_explicit(&trace->ops_count, memory_order_relaxed);
    if (count < PLAN_TRACE_OPS_MAX) {
        trace->ops[count] = (struct recorded_op){op, begin_ns, end_ns};
        atomic_store_explicit(&trace->ops_count, count + 1, memory_order_release);
    }
}

/* Returns false if no command of the compute queue was recorded. */
static bool compute_span(const struct plan_trace *trace, struct plan_time *out)
{
    *out = (struct plan_time){.begin_seconds = HUGE_VAL, .end_seconds = -HUGE_VAL};
    for (uint32_t t = 0; t < trace->count && trace->recorded[t].tape != NULL; t++) {
        const struct plan_tape *tape = trace->recorded[t].tape;
        for (uint32_t i = 0; i < tape->count; i++) {
            const struct plan_time time = trace->recorded[t].times[i];
            if (tape->commands[i].queue == PLAN_Q_COMPUTE &&
                time.end_seconds >= time.begin_seconds) {
                out->begin_seconds = fmin(out->begin_seconds, time.begin_seconds);
                out->end_seconds = fmax(out->end_seconds, time.end_seconds);
            }
        }
    }
    return out->end_seconds >= out->begin_seconds;
}

struct op_total {
    const char *name; /* borrowed */
    uint64_t count;
    double seconds;
};

/* Ignores a new name after OP_NAMES_MAX names. Returns the number of names. */
static uint32_t add_op(struct op_total *totals, uint32_t count, const char *name, double seconds)
{
    uint32_t at = 0;
    while (at < count && strcmp(totals[at].name, name) != 0) {
        at++;
    }
    if (at == OP_NAMES_MAX) {
        return count;
    }
    if (at == count) {
        totals[at] = (struct op_total){.name = name};
        count++;
    }
    totals[at].count++;
    totals[at].seconds += seconds;
    return count;
}

static int by_seconds(const void *left, const void *right)
{
    const double a = ((const struct op_total *)left)->seconds;
    const double b = ((const struct op_total *)right)->seconds;
    return (a < b) - (a > b);
}

/* Writes the ops between the first and the last recorded command of the compute queue; ends the
 * file. */
static void write_ops(const struct plan_trace *trace, uint32_t rank, struct writing *writing)
{
    struct op_total totals[OP_NAMES_MAX];
    char text[EVENT_BYTES];
    char begin[32];
    char length[32];
    struct plan_time span;
    uint32_t names = 0;
    const uint32_t count = atomic_load_explicit(&trace->ops_count, memory_order_acquire);
    const bool any = compute_span(trace, &span) && count > 0;
    if (any) {
        write_row(writing, rank, OPS_ROW, "ops of compute", 2 * PLAN_Q_COMPUTE + 1);
    }
    for (uint32_t i = 0; any && i < count; i++) {
        const struct recorded_op *op = &trace->ops[i];
        const double from = (double)(op->begin_ns - trace->start_ns) * 1e-9;
        const double seconds = (double)(op->end_ns - op->begin_ns) * 1e-9;
        if (from + seconds > span.begin_seconds && from < span.end_seconds) {
            snprintf(text, sizeof text,
                     ",\n{\"name\":\"%.64s\",\"cat\":\"op\",\"ph\":\"X\",\"pid\":%u,\"tid\":%d,"
                     "\"ts\":%s,\"dur\":%s}",
                     op->name, rank, OPS_ROW, print_micros(from, begin),
                     print_micros(seconds, length));
            write_text(writing, text);
            names = add_op(totals, names, op->name, seconds);
        }
    }
    qsort(totals, names, sizeof totals[0], by_seconds);
    write_text(writing, "\n],\"otherData\":{\"ops\":[");
    for (uint32_t i = 0; i < names; i++) {
        snprintf(text, sizeof text, "%s\n{\"op\":\"%.64s\",\"count\":%" PRIu64 ",\"us\":%s}",
                 i > 0 ? "," : "", totals[i].name, totals[i].count,
                 print_micros(totals[i].seconds, length));
        write_text(writing, text);
    }
    snprintf(text, sizeof text, "],\"ops_complete\":%s}}\n",
             count < PLAN_TRACE_OPS_MAX ? "true" : "false");
    write_text(writing, text);
}

int plan_trace_write(const struct plan_trace *trace, const struct plan_input *input,
                     const char *path)
{
    struct writing writing;
    int rc = open_file(path, &writing);
    if (rc != 0) {
        return rc;
    }
    write_head(input, &writing);
    for (uint32_t i = 0; i < trace->count && trace->recorded[i].tape != NULL; i++) {
        write_tape(input, &writing, trace->recorded[i].tape, trace->recorded[i].times);
    }
    write_ops(trace, input->rank, &writing);
    return close_file(&writing);
}

/* ---- timelines of simulated steps ---- */

/* Includes the drain if an update is pending after the steps. */
static uint32_t tapes_of_run(const struct plan *plan, uint32_t steps,
                             const struct plan_tape **tapes)
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

/* Tapes, with the simulated times of their commands. */
struct simulated {
    uint32_t count;
    const struct plan_tape **tapes; /* owned array of borrowed tapes */
    struct plan_time **times;       /* owned, one array per tape */
    double *ends;                   /* owned */
};

static void simulated_fini(struct simulated *simulated)
{
    for (uint32_t t = 0; simulated->times != NULL && t < simulated->count; t++) {
        free(simulated->times[t]);
    }
    free(simulated->times);
    free(simulated->tapes);
    free(simulated->ends);
}

/* The caller calls simulated_fini, even after an error. */
static int simulate(const struct plan_input *input, const struct plan *plan, uint32_t steps,
                    struct simulated *out)
{
    out->tapes = calloc(steps + 1u, sizeof(void *));
    out->times = calloc(steps + 1u, sizeof(void *));
    out->ends = calloc(steps + 1u, sizeof *out->ends);
    if (out->tapes == NULL || out->times == NULL || out->ends == NULL) {
        goto no_memory;
    }
    out->count = tapes_of_run(plan, steps, out->tapes);
    for (uint32_t t = 0; t < out->count; t++) {
        out->times[t] = calloc(out->tapes[t]->count, sizeof *out->times[t]);
        if (out->times[t] == NULL) {
            goto no_memory;
        }
    }
    return plan_sim_run(&input->rates, input->budgets.device_is_host, out->tapes, out->count,
                        out->times, out->ends);
no_memory:
    return core_err_set(-ENOMEM, "no memory for a timeline of %u steps", steps);
}

int plan_trace_predict(const struct plan_input *input, const struct plan *plan, uint32_t steps,
                       const char *path)
{
    struct writing writing;
    struct simulated simulated = {0};
    int rc = simulate(input, plan, steps, &simulated);
    if (rc != 0) {
        goto end;
    }
    rc = open_file(path, &writing);
    if (rc != 0) {
        goto end;
    }
    write_head(input, &writing);
    for (uint32_t t = 0; t < simulated.count; t++) {
        write_tape(input, &writing, simulated.tapes[t], simulated.times[t]);
    }
    write_text(&writing, "\n]}\n");
    rc = close_file(&writing);
end:
    simulated_fini(&simulated);
    return rc;
}
