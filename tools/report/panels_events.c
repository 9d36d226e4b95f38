/* panels_events.c: the list of what happened. */
#include <inttypes.h>
#include <string.h>

#include "tools/report/chart.h"
#include "tools/report/panels.h"

/* Rows of one kind that follow each other are one row: saves are many. */
static size_t same_kind(const struct report_run *run, size_t from)
{
    size_t to = from + 1;
    while (to < run->event_count && strcmp(run->events[from].kind, "save") == 0 &&
           strcmp(run->events[to].kind, "save") == 0) {
        to++;
    }
    return to;
}

static void write_event(FILE *out, const struct report_run *run, size_t from, size_t to)
{
    const struct report_event *first = &run->events[from];
    fprintf(out, "<tr class=\"%s\"><td>%" PRIu64,
            strcmp(first->kind, "warning") == 0 ? "warning"
            : strcmp(first->kind, "error") == 0 ? "error"
                                                : "plain",
            first->step);
    if (run->events[to - 1].step != first->step) {
        fprintf(out, "\xe2\x80\x93%" PRIu64, run->events[to - 1].step);
    }
    fputs("</td><td>", out);
    report_escape(out, first->kind);
    fputs("</td><td>", out);
    report_escape(out, first->text);
    if (to - from > 1) {
        fprintf(out, " \xe2\x80\xa6 ");
        report_escape(out, run->events[to - 1].text);
        fprintf(out, " (%zu)", to - from);
    }
    fputs("</td></tr>\n", out);
}

void report_panels_events(FILE *out, const struct report_run *run)
{
    fputs("<section class=\"wide\" id=\"events\"><h2>What happened</h2>", out);
    if (run->event_count > 0) {
        fputs("<div "
              "class=\"scroll\"><table><thead><tr><th>step</th><th>what</th><th></th></tr></thead>"
              "<tbody>\n",
              out);
        for (size_t i = 0; i < run->event_count;) {
            const size_t to = same_kind(run, i);
            write_event(out, run, i, to);
            i = to;
        }
        fputs("</tbody></table></div>", out);
    } else {
        fputs("<p>No warnings, no saves.</p>", out);
    }
    if (run->events_lost > 0) {
        fprintf(out, "<p>%" PRIu64 " more are in the log.</p>", run->events_lost);
    }
    if (run->restarts > 0) {
        fprintf(out,
                "<p>The run was taken up %" PRIu64 " time%s; %" PRIu64 " step%s made again.</p>",
                run->restarts, run->restarts == 1 ? "" : "s", run->repeated,
                run->repeated == 1 ? " was" : "s were");
    }
    if (run->torn) {
        fputs("<p>The log's last line is not whole, and was left out.</p>", out);
    }
    fputs("</section>\n", out);
}
