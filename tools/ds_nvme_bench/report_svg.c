/* report_svg.c: draws bandwidth over block size, a line for each depth. */
#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/base/size.h"
#include "tools/ds_nvme_bench/report.h"

enum {
    WIDTH = 420,
    HEIGHT = 260,
    LEFT = 56,
    TOP = 48,
    GAP = 40,
    BOTTOM = 96,
    LEGEND_COLUMNS = 8,
    LEGEND_LINE = 18,
    SERIES_MAX = BENCH_POINTS_MAX
};

struct field {
    const struct bench_sweep *sweep;
    enum bench_op op;
    double x; /* upper left corner */
    double y;
    double block_low; /* log2 of bytes */
    double block_high;
    double rate_high; /* bytes per second */
};

static const char *const colours[] = {"#0b5394", "#38761d", "#b45f06", "#741b47",
                                      "#134f5c", "#990000", "#351c75", "#7f6000"};

static double x_of(const struct field *field, double block_bytes)
{
    double span = field->block_high - field->block_low;
    return field->x + (span > 0 ? (log2(block_bytes) - field->block_low) / span : 0.5) * WIDTH;
}

static double y_of(const struct field *field, double rate)
{
    return field->y + HEIGHT - rate / field->rate_high * HEIGHT;
}

static void put_escaped(const char *text, FILE *out)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '&': fputs("&amp;", out); break;
        default: fputc(*text, out); break;
        }
    }
}

static void put_axes(const struct field *field, FILE *out)
{
    fprintf(out,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" fill=\"none\" "
            "stroke=\"#999\"/>\n<text x=\"%.1f\" y=\"%.1f\" font-weight=\"bold\">%s</text>\n",
            field->x, field->y, WIDTH, HEIGHT, field->x, field->y - 10, bench_op_name(field->op));
    for (int i = 0; i <= 4; i++) {
        double rate = field->rate_high * i / 4;
        fprintf(out,
                "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>"
                "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.2g</text>\n",
                field->x, field->x + WIDTH, y_of(field, rate), y_of(field, rate), field->x - 6,
                y_of(field, rate) + 4, rate / 1e9);
    }
    for (double block = field->block_low; block <= field->block_high + 0.01; block += 1) {
        char size[32];
        fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
                x_of(field, exp2(block)), field->y + HEIGHT + 18,
                core_size_print((uint64_t)llround(exp2(block)), size, sizeof size));
    }
}

static void put_series(const struct field *field, uint32_t depth, uint32_t threads,
                       const char *colour, FILE *out)
{
    bool any = false;
    double last = 0;
    fprintf(out, "<g stroke=\"%s\" fill=\"%s\">\n", colour, colour);
    double last_x = 0;
    double last_y = 0;
    for (;;) {
        const struct bench_point *next = NULL;
        for (unsigned p = 0; p < field->sweep->count; p++) {
            const struct bench_point *point = &field->sweep->points[p];
            const struct bench_params *params = &point->params;
            if (params->op == field->op && params->depth == depth && params->threads == threads &&
                params->block_bytes > last && point->count > 0 &&
                (next == NULL || params->block_bytes < next->params.block_bytes)) {
                next = point;
            }
        }
        if (next == NULL) {
            break;
        }
        double x = x_of(field, next->params.block_bytes);
        double y = y_of(field, next->median);
        if (any) {
            fprintf(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", last_x,
                    last_y, x, y);
        }
        fprintf(out,
                "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" opacity=\"0.5\"/>"
                "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\"><title>%.3f GB/s</title></circle>\n",
                x, x, y_of(field, next->interval.low), y_of(field, next->interval.high), x, y,
                next->median / 1e9);
        last = next->params.block_bytes;
        last_x = x;
        last_y = y;
        any = true;
    }
    fprintf(out, "</g>\n");
}

struct series {
    uint32_t depth;
    uint32_t threads;
};

static unsigned list_series(const struct bench_report *report, struct series *list)
{
    unsigned count = 0;
    for (unsigned r = 0; r < report->count; r++) {
        for (unsigned p = 0; p < report->results[r].sweep.count; p++) {
            const struct bench_params *params = &report->results[r].sweep.points[p].params;
            unsigned i = 0;
            while (i < count &&
                   (list[i].depth != params->depth || list[i].threads != params->threads)) {
                i++;
            }
            if (i == count && count < SERIES_MAX) {
                list[count++] = (struct series){.depth = params->depth, .threads = params->threads};
            }
        }
    }
    return count;
}

static void put_result(const struct bench_report *report, unsigned r, const struct series *list,
                       unsigned series_count, FILE *out)
{
    const struct bench_sweep *sweep = &report->results[r].sweep;
    struct field field = {.sweep = sweep, .block_low = 64, .y = TOP + 20};
    field.y += r * (HEIGHT + 90.0);
    for (unsigned p = 0; p < sweep->count; p++) {
        double block = log2(sweep->points[p].params.block_bytes);
        field.block_low = fmin(field.block_low, block);
        field.block_high = fmax(field.block_high, block);
        field.rate_high = fmax(field.rate_high, sweep->points[p].interval.high);
    }
    field.rate_high = field.rate_high > 0 ? field.rate_high * 1.05 : 1;
    fprintf(out, "<text x=\"%d\" y=\"%.1f\">", LEFT, field.y - 24);
    put_escaped(report->results[r].target.path, out);
    fputs("</text>\n", out);
    for (int op = 0; op < BENCH_OP_COUNT; op++) {
        field.op = (enum bench_op)op;
        field.x = LEFT + op * (WIDTH + LEFT + GAP / 2.0);
        put_axes(&field, out);
        for (unsigned s = 0; s < series_count; s++) {
            put_series(&field, list[s].depth, list[s].threads, colours[s % 8], out);
        }
    }
}

int bench_report_svg(const struct bench_report *report, FILE *out)
{
    struct series list[SERIES_MAX];
    unsigned count = list_series(report, list);
    double width = BENCH_OP_COUNT * (WIDTH + LEFT + GAP / 2.0) + GAP;
    double legend = TOP + report->count * (HEIGHT + 90.0);
    double height = legend + BOTTOM + count / LEGEND_COLUMNS * (double)LEGEND_LINE;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
            "font-family=\"sans-serif\" font-size=\"11\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
            "<text x=\"%d\" y=\"28\" font-size=\"15\">Bandwidth (GB/s) over block size; bars: 95 "
            "%% interval of the median</text>\n",
            width, height, LEFT);
    for (unsigned r = 0; r < report->count; r++) {
        put_result(report, r, list, count, out);
    }
    for (unsigned s = 0; s < count; s++) {
        double x = LEFT + s % LEGEND_COLUMNS * 150.0;
        double y = legend + 50 + s / LEGEND_COLUMNS * (double)LEGEND_LINE;
        fprintf(out,
                "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
                "stroke-width=\"3\"/><text x=\"%.1f\" y=\"%.1f\">depth %u, %u thread%s</text>\n",
                x, x + 18, y, y, colours[s % 8], x + 24, y + 4, list[s].depth, list[s].threads,
                list[s].threads == 1 ? "" : "s");
    }
    fprintf(out, "</svg>\n");
    return ferror(out) ? core_err_set(-EIO, "the picture could not be written") : 0;
}
