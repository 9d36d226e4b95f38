/* report_csv.c: a CSV line for each point. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "tools/ds_nvme_bench/report.h"

/* Writes a field, in quotes if necessary (RFC 4180). */
static void put_text(FILE *out, const char *text)
{
    if (strpbrk(text, ",\"\n\r") == NULL) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text != '\0'; text++) {
        if (*text == '"') {
            fputc('"', out);
        }
        fputc(*text, out);
    }
    fputc('"', out);
}

int bench_report_csv(const struct bench_report *report, FILE *out)
{
    fputs("dir,op,backend,block_size,queue_depth,threads,samples,median_bytes_per_s,"
          "ci95_low_bytes_per_s,ci95_high_bytes_per_s,p50_ms,p99_ms,p999_ms,max_ms,cpu_ms_per_gib,"
          "short,retried,failed\n",
          out);
    for (unsigned r = 0; r < report->count; r++) {
        const struct bench_result *result = &report->results[r];
        for (unsigned p = 0; p < result->sweep.count; p++) {
            const struct bench_point *point = &result->sweep.points[p];
            put_text(out, result->target.path);
            fprintf(out,
                    ",%s,%s,%u,%u,%u,%u,%.0f,%.0f,%.0f,%.3f,%.3f,%.3f,%.3f,%.2f,%llu,%llu,%llu\n",
                    bench_op_name(point->params.op), result->target.backend->name,
                    point->params.block_bytes, point->params.depth, point->params.threads,
                    point->count, point->median, point->interval.low, point->interval.high,
                    point->latency_ms[0], point->latency_ms[1], point->latency_ms[2],
                    point->latency_ms[3], point->cpu_ms_per_gib, (unsigned long long)point->shorts,
                    (unsigned long long)point->retries, (unsigned long long)point->errors);
        }
    }
    return ferror(out) ? core_err_set(-EIO, "the CSV could not be written") : 0;
}
