/* report_table.c: the table and the conclusions, for people. */
#include <stdio.h>
#include <string.h>

#include "core/base/mem_limits.h"
#include "core/base/size.h"
#include "tools/ds_nvme_bench/report.h"
#include "tools/tide/cli.h"

enum { COLUMNS = 11, CELL = 48 };

struct row {
    const struct bench_params *setting;
    const struct bench_point *points[BENCH_OP_COUNT];
};

static void put_rate(char *cell, const struct bench_point *point)
{
    if (point == NULL || point->count == 0) {
        snprintf(cell, CELL, "-");
        return;
    }
    double half = (point->interval.high - point->interval.low) / 2;
    snprintf(cell, CELL, "%.2f ±%.1f%%", point->median / 1e9, half / point->median * 100);
}

static const struct bench_point *any_of(const struct row *row)
{
    const struct bench_point *any = NULL;
    for (int op = BENCH_OP_COUNT; op-- > 0;) {
        any = row->points[op] != NULL ? row->points[op] : any;
    }
    return any;
}

static double peak_share(const struct bench_result *result, const struct row *row)
{
    double share = 1;
    for (int op = 0; op < BENCH_OP_COUNT; op++) {
        double best = bench_sweep_best(&result->sweep, (enum bench_op)op);
        if (row->points[op] != NULL && best > 0 && row->points[op]->median / best < share) {
            share = row->points[op]->median / best;
        }
    }
    return share;
}

static bool recommends_one(const struct bench_report *report)
{
    return report->recommends && report->recommendation.settings > 1;
}

static void add_row(struct cli_table *table, const struct bench_report *report,
                    const struct bench_result *result, const struct row *row)
{
    char cells[COLUMNS][CELL];
    const char *texts[COLUMNS];
    const struct bench_point *any = any_of(row);
    uint64_t shorts = 0;
    uint64_t errors = 0;
    double cpu = 0;
    for (int op = 0; op < BENCH_OP_COUNT; op++) {
        shorts += row->points[op] != NULL ? row->points[op]->shorts : 0;
        errors += row->points[op] != NULL ? row->points[op]->errors + row->points[op]->retries : 0;
        cpu = row->points[op] != NULL && row->points[op]->cpu_ms_per_gib > cpu
                  ? row->points[op]->cpu_ms_per_gib
                  : cpu;
        put_rate(cells[3 + op], row->points[op]);
    }
    core_size_print(row->setting->block_bytes, cells[0], CELL);
    snprintf(cells[1], CELL, "%u", row->setting->depth);
    snprintf(cells[2], CELL, "%u", row->setting->threads);
    snprintf(cells[6], CELL, "%.2f/%.2f/%.2f", any->latency_ms[0], any->latency_ms[1],
             any->latency_ms[3]);
    snprintf(cells[7], CELL, "%.1f", cpu);
    snprintf(cells[8], CELL, "%llu/%llu", (unsigned long long)shorts, (unsigned long long)errors);
    snprintf(cells[9], CELL, "%.0f", peak_share(result, row) * 100);
    const struct bench_recommendation *made = &report->recommendation;
    bool chosen = recommends_one(report) && made->block_bytes == row->setting->block_bytes &&
                  made->depth == row->setting->depth && made->threads == row->setting->threads;
    snprintf(cells[10], CELL, "%s", chosen ? "<- recommended" : "");
    for (int i = 0; i < COLUMNS; i++) {
        texts[i] = cells[i];
    }
    cli_table_add(table, texts);
}

static void print_points(const struct bench_report *report, const struct bench_result *result,
                         FILE *out)
{
    static const char *const head[COLUMNS] = {
        "block",          "qd",         "thr",       "read GB/s", "write GB/s", "rw GB/s",
        "p50/p99/max ms", "CPU ms/GiB", "short/err", "%peak",     "note"};
    struct cli_table *table = NULL;
    if (result->sweep.count == 0 || cli_table_create(COLUMNS, &table) != 0) {
        return;
    }
    cli_table_add(table, head);
    for (unsigned p = 0; p < result->sweep.count; p++) {
        struct row row = {.setting = &result->sweep.points[p].params};
        for (int op = 0; op < BENCH_OP_COUNT; op++) {
            row.points[op] = bench_sweep_find(&result->sweep, (enum bench_op)op,
                                              row.setting->block_bytes, row.setting->depth,
                                              row.setting->threads);
        }
        if (any_of(&row) == &result->sweep.points[p]) {
            add_row(table, report, result, &row);
        }
    }
    cli_table_print(table, out, "  ");
    cli_table_destroy(table);
}

static void print_target(const struct bench_result *result, FILE *out)
{
    const struct bench_target *target = &result->target;
    const struct core_block_device *block = &result->device.block;
    char size[32];
    fprintf(out, "\n%s on ", target->path);
    if (result->device.found) {
        fprintf(out, "%s (%s%s%s", block->name,
                block->model[0] != '\0' ? block->model
                : block->virtual_drive  ? "a virtual drive"
                                        : "no model name",
                block->firmware[0] != '\0' ? ", firmware " : "", block->firmware);
        if (block->node >= 0) {
            fprintf(out, ", node %d", block->node);
        }
        if (block->drives > 1) {
            fprintf(out, ", the first of %u", block->drives);
        }
        fprintf(out, "), ");
    }
    fprintf(out, "%s, %s, %s\n", target->fs.type,
            target->direct ? "direct" : "through the page cache", target->backend->name);
    fprintf(out, "  scratch file %s, first written at %.2f GB/s",
            core_size_print(target->file_bytes, size, sizeof size), target->fill_bytes_per_s / 1e9);
    if (block->max_sectors_kb > 0) {
        fprintf(out, "; requests up to %lld KiB, scheduler %s", (long long)block->max_sectors_kb,
                block->scheduler[0] != '\0' ? block->scheduler : "unknown");
    }
    fprintf(out, "\n");
}

static void print_swap(const struct bench_result *result, FILE *out)
{
    const struct bench_swap *swap = &result->swap;
    if (result->swapped) {
        fprintf(out,
                "  swap: %u tensors, %.2f GB in and as much out, %.2f GB/s together (%.2f to "
                "%.2f), %.1f ms CPU/GiB\n",
                swap->tensors, (double)swap->bytes / 2e9, swap->bytes_per_s / 1e9,
                swap->interval.low / 1e9, swap->interval.high / 1e9, swap->cpu_ms_per_gib);
    }
    if (result->verified && result->verify.wrong == 0) {
        fprintf(out, "  verify: %.2f GB were read back as written\n",
                (double)result->verify.bytes / 1e9);
    } else if (result->verified) {
        fprintf(out,
                "  verify: %llu pieces of 4 KiB of %.2f GB are WRONG, the first at byte %llu in "
                "pass %u\n",
                (unsigned long long)result->verify.wrong, (double)result->verify.bytes / 1e9,
                (unsigned long long)result->verify.first_wrong, result->verify.pass);
    }
}

static void print_soak(const struct bench_result *result, FILE *out)
{
    if (!result->soaked || result->sweep.count == 0) {
        return;
    }
    for (unsigned p = 0; p < result->sweep.count; p++) {
        const struct bench_point *point = &result->sweep.points[p];
        unsigned part = point->count / 5 > 0 ? point->count / 5 : 1;
        double burst = bench_median(point->samples, part);
        double sustained = bench_median(point->samples + point->count - part, part);
        int likely = 0;
        double trend = bench_trend(point->samples, point->count, &likely);
        fprintf(out, "  soak %s: %.2f GB/s at first, %.2f GB/s at the end (%.0f %%)%s\n",
                bench_op_name(point->params.op), burst / 1e9, sustained / 1e9,
                burst > 0 ? sustained / burst * 100 : 0,
                likely && trend < 0
                    ? ": the rate falls, because a cache fills up or the drive gets hot"
                    : "");
    }
}

static void print_environment(const struct bench_environment *environment, FILE *out)
{
    char memory[32];
    char locked[32] = "no limit";
    if (environment->memlock_bytes != CORE_MEM_UNLIMITED) {
        core_size_print(environment->memlock_bytes, locked, sizeof locked);
    }
    fprintf(out, "%s, %s, %u processors, %s\n", environment->kernel, environment->cpu,
            environment->processors,
            core_size_print(environment->memory_bytes, memory, sizeof memory));
    fprintf(out, "memlock %s, huge pages %llu free, transparent %s; %s\n", locked,
            (unsigned long long)environment->huge_pages_free, environment->huge_pages,
            environment->io_uring);
}

static void print_model(const struct bench_report *report, FILE *out)
{
    unsigned drives = bench_report_drives(report);
    double mixed = bench_report_rate(report, BENCH_RW) * drives;
    if (report->params > 0 && mixed <= 0) {
        fprintf(out,
                "\nNo step time for a model: it needs measurements of reading and writing at "
                "once%s.\n",
                report->results[0].sweep.count == 0 ? " (--mode sweep or point)"
                : report->wants_mixed
                    ? ", and every setting has too much in flight for them; give a larger "
                      "--io_size, or a smaller --block_size or --queue_depth"
                    : " (--op rw)");
    }
    if (report->params <= 0 || mixed <= 0) {
        return;
    }
    struct bench_wear wear = bench_wear_of(report->params, mixed, report->rated_bytes);
    fprintf(out,
            "\nA model of %.3gB parameters, everything but gradients on %s: %.1f s of I/O per step "
            "(%.1f GB in, %.1f GB out).\n",
            report->params / 1e9, drives > 1 ? "these drives" : "this drive", wear.step_seconds,
            wear.step_read_bytes / 1e9, wear.step_write_bytes / 1e9);
    fprintf(out, "Wear: %.3f TB written per step, %.1f TB per day at full speed",
            wear.step_write_bytes / 1e12, wear.day_write_bytes / 1e12);
    if (wear.life_days > 0) {
        fprintf(out, ": the rated life ends after %.0f days.\n", wear.life_days);
    } else {
        fprintf(out, "; --tbw TB, from the drive's data sheet, turns that into days.\n");
    }
}

void bench_report_table(const struct bench_report *report, FILE *out)
{
    print_environment(&report->environment, out);
    for (unsigned r = 0; r < report->count; r++) {
        print_target(&report->results[r], out);
        print_points(report, &report->results[r], out);
        print_swap(&report->results[r], out);
        print_soak(&report->results[r], out);
    }
    if (recommends_one(report)) {
        const struct bench_recommendation *made = &report->recommendation;
        char block[32];
        fprintf(out, "\nRecommended: block %s, queue depth %u, %u thread%s (confidence %s): %s.\n",
                core_size_print(made->block_bytes, block, sizeof block), made->depth, made->threads,
                made->threads == 1 ? "" : "s", made->confident ? "high" : "low", made->reason);
    }
    print_model(report, out);
    char verdict[512];
    bench_report_verdict(report, verdict, sizeof verdict);
    if (verdict[0] != '\0') {
        fprintf(out, "\n%s\n", verdict);
    }
}
