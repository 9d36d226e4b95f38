/* report_json.c: the report as JSON (docs/ds_nvme_bench.schema.json). */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/err.h"
#include "core/base/mem_limits.h"
#include "core/json/json.h"
#include "core/json/write.h"
#include "tools/ds_nvme_bench/report.h"
#include "tools/ds_nvme_bench/version.h"

static void write_host(struct core_json_write *json, const struct bench_environment *environment)
{
    core_json_write_object_begin(json, "host");
    core_json_write_string(json, "name", environment->host);
    core_json_write_string(json, "kernel", environment->kernel);
    core_json_write_string(json, "cpu", environment->cpu);
    core_json_write_unsigned(json, "processors", environment->processors);
    core_json_write_unsigned(json, "memory_bytes", environment->memory_bytes);
    if (environment->memlock_bytes == CORE_MEM_UNLIMITED) {
        core_json_write_null(json, "memlock_bytes");
    } else {
        core_json_write_unsigned(json, "memlock_bytes", environment->memlock_bytes);
    }
    core_json_write_unsigned(json, "huge_pages_free", environment->huge_pages_free);
    core_json_write_string(json, "transparent_huge_pages", environment->huge_pages);
    core_json_write_string(json, "io_uring", environment->io_uring);
    core_json_write_object_end(json);
}

static void write_device(struct core_json_write *json, const struct bench_result *result)
{
    const struct bench_target *target = &result->target;
    const struct core_block_device *block = &result->device.block;
    core_json_write_object_begin(json, NULL);
    core_json_write_string(json, "dir", target->path);
    core_json_write_string(json, "fs", target->fs.type);
    core_json_write_string(json, "mount_options", result->device.mount);
    core_json_write_bool(json, "direct", target->direct);
    core_json_write_unsigned(json, "memory_align", target->fs.memory_align);
    core_json_write_unsigned(json, "offset_align", target->fs.offset_align);
    core_json_write_unsigned(json, "file_bytes", target->file_bytes);
    core_json_write_real(json, "first_write_bytes_per_s", target->fill_bytes_per_s);
    core_json_write_string(json, "backend", target->backend->name);
    core_json_write_string(json, "backend_reason", target->backend_reason);
    if (result->device.found) {
        core_json_write_string(json, "device", block->name);
        core_json_write_string(json, "model", block->model);
        core_json_write_string(json, "firmware", block->firmware);
        core_json_write_string(json, "scheduler", block->scheduler);
        core_json_write_integer(json, "numa_node", block->node);
        core_json_write_integer(json, "max_sectors_kb", block->max_sectors_kb);
        core_json_write_unsigned(json, "drives", block->drives);
    }
    core_json_write_object_end(json);
}

static void write_point(struct core_json_write *json, const struct bench_result *result,
                        const struct bench_point *point)
{
    static const char *const names[] = {"p50_ms", "p99_ms", "p999_ms", "max_ms"};
    core_json_write_object_begin(json, NULL);
    core_json_write_string(json, "dir", result->target.path);
    core_json_write_object_begin(json, "params");
    core_json_write_string(json, "op", bench_op_name(point->params.op));
    core_json_write_unsigned(json, "block_size", point->params.block_bytes);
    core_json_write_unsigned(json, "queue_depth", point->params.depth);
    core_json_write_unsigned(json, "threads", point->params.threads);
    core_json_write_string(json, "backend", result->target.backend->name);
    core_json_write_object_end(json);
    core_json_write_array_begin(json, "samples");
    for (unsigned i = 0; i < point->count; i++) {
        core_json_write_real(json, NULL, point->samples[i]);
    }
    core_json_write_array_end(json);
    core_json_write_real(json, "median", point->median);
    core_json_write_array_begin(json, "ci95");
    core_json_write_real(json, NULL, point->interval.low);
    core_json_write_real(json, NULL, point->interval.high);
    core_json_write_array_end(json);
    core_json_write_real(json, "read_share", point->read_share);
    core_json_write_object_begin(json, "pct");
    for (int i = 0; i < 4; i++) {
        core_json_write_real(json, names[i], point->latency_ms[i]);
    }
    core_json_write_object_end(json);
    core_json_write_object_begin(json, "cpu");
    core_json_write_real(json, "ms_per_gib", point->cpu_ms_per_gib);
    core_json_write_object_end(json);
    core_json_write_object_begin(json, "errors");
    core_json_write_unsigned(json, "short", point->shorts);
    core_json_write_unsigned(json, "retried", point->retries);
    core_json_write_unsigned(json, "failed", point->errors);
    core_json_write_object_end(json);
    core_json_write_string(json, "setup", point->setup);
    core_json_write_object_end(json);
}

static void write_aio(struct core_json_write *json, const struct bench_recommendation *made)
{
    core_json_write_object_begin(json, "aio");
    core_json_write_unsigned(json, "block_size", made->block_bytes);
    core_json_write_unsigned(json, "queue_depth", made->depth);
    core_json_write_unsigned(json, "intra_op_parallelism", made->threads);
    core_json_write_bool(json, "single_submit", false);
    core_json_write_bool(json, "overlap_events", true);
    core_json_write_object_end(json);
}

static void write_recommendation(struct core_json_write *json, const struct bench_report *report)
{
    const struct bench_recommendation *made = &report->recommendation;
    if (!report->recommends) {
        core_json_write_null(json, "recommendation");
        return;
    }
    core_json_write_object_begin(json, "recommendation");
    core_json_write_object_begin(json, "config");
    write_aio(json, made);
    core_json_write_object_end(json);
    core_json_write_string(json, "reason", made->reason);
    core_json_write_string(json, "confidence", made->confident ? "high" : "low");
    core_json_write_real(json, "share_of_best", made->score);
    core_json_write_object_end(json);
}

static void write_swaps(struct core_json_write *json, const struct bench_report *report)
{
    core_json_write_array_begin(json, "swap");
    for (unsigned r = 0; r < report->count; r++) {
        const struct bench_swap *swap = &report->results[r].swap;
        if (!report->results[r].swapped) {
            continue;
        }
        core_json_write_object_begin(json, NULL);
        core_json_write_string(json, "dir", report->results[r].target.path);
        core_json_write_unsigned(json, "tensors", swap->tensors);
        core_json_write_unsigned(json, "bytes_per_step", swap->bytes);
        core_json_write_real(json, "bytes_per_s", swap->bytes_per_s);
        core_json_write_array_begin(json, "ci95");
        core_json_write_real(json, NULL, swap->interval.low);
        core_json_write_real(json, NULL, swap->interval.high);
        core_json_write_array_end(json);
        core_json_write_real(json, "cpu_ms_per_gib", swap->cpu_ms_per_gib);
        core_json_write_object_end(json);
    }
    core_json_write_array_end(json);
}

static void write_verifies(struct core_json_write *json, const struct bench_report *report)
{
    core_json_write_array_begin(json, "verify");
    for (unsigned r = 0; r < report->count; r++) {
        const struct bench_verify *verify = &report->results[r].verify;
        if (!report->results[r].verified) {
            continue;
        }
        core_json_write_object_begin(json, NULL);
        core_json_write_string(json, "dir", report->results[r].target.path);
        core_json_write_unsigned(json, "bytes", verify->bytes);
        core_json_write_unsigned(json, "wrong_pieces", verify->wrong);
        core_json_write_object_end(json);
    }
    core_json_write_array_end(json);
}

static void write_model(struct core_json_write *json, const struct bench_report *report)
{
    double mixed = bench_report_rate(report, BENCH_RW) * bench_report_drives(report);
    if (report->params <= 0 || mixed <= 0) {
        return;
    }
    struct bench_wear wear = bench_wear_of(report->params, mixed, report->rated_bytes);
    core_json_write_object_begin(json, "model");
    core_json_write_real(json, "params", report->params);
    core_json_write_real(json, "step_io_seconds", wear.step_seconds);
    core_json_write_real(json, "step_read_bytes", wear.step_read_bytes);
    core_json_write_real(json, "step_write_bytes", wear.step_write_bytes);
    core_json_write_real(json, "day_write_bytes", wear.day_write_bytes);
    if (wear.life_days > 0) {
        core_json_write_real(json, "life_days", wear.life_days);
    }
    core_json_write_object_end(json);
}

int bench_report_json(const struct bench_report *report, FILE *out)
{
    struct core_json_write json;
    core_json_write_init_file(&json, out);
    json.indent = 2;
    core_json_write_object_begin(&json, NULL);
    core_json_write_integer(&json, "schema_version", BENCH_SCHEMA_VERSION);
    core_json_write_string(&json, "tool", "ds_nvme_bench");
    core_json_write_string(&json, "version", bench_version());
    core_json_write_string(&json, "git", bench_commit());
    core_json_write_string(&json, "mode", report->mode);
    write_host(&json, &report->environment);
    core_json_write_array_begin(&json, "devices");
    for (unsigned r = 0; r < report->count; r++) {
        write_device(&json, &report->results[r]);
    }
    core_json_write_array_end(&json);
    core_json_write_array_begin(&json, "points");
    for (unsigned r = 0; r < report->count; r++) {
        for (unsigned p = 0; p < report->results[r].sweep.count; p++) {
            write_point(&json, &report->results[r], &report->results[r].sweep.points[p]);
        }
    }
    core_json_write_array_end(&json);
    write_swaps(&json, report);
    write_verifies(&json, report);
    write_recommendation(&json, report);
    write_model(&json, report);
    core_json_write_object_end(&json);
    int rc = core_json_write_end(&json);
    core_json_write_fini(&json);
    return rc;
}

int bench_report_replaceable(const char *path)
{
    struct stat info;
    struct core_json *doc = NULL;
    struct core_json_member member;
    if (strcmp(path, "-") == 0 || stat(path, &info) != 0 || !S_ISREG(info.st_mode) ||
        info.st_size == 0) {
        return 0;
    }
    bool ours = core_json_load(path, NULL, &doc) == 0 &&
                core_json_kind(core_json_root(doc)) == CORE_JSON_OBJECT;
    for (bool any = ours && core_json_first(core_json_root(doc), &member); any && ours;
         any = core_json_next(&member)) {
        ours = strcmp(member.key, "aio") == 0;
    }
    core_json_destroy(doc);
    return ours ? 0
                : core_err_set(-EEXIST,
                               "%s has more than an aio block and is not overwritten; name another "
                               "file with --emit-config and copy the block",
                               path);
}

int bench_report_config(const struct bench_report *report, FILE *out)
{
    struct core_json_write json;
    core_json_write_init_file(&json, out);
    json.indent = 2;
    core_json_write_object_begin(&json, NULL);
    write_aio(&json, &report->recommendation);
    core_json_write_object_end(&json);
    int rc = core_json_write_end(&json);
    core_json_write_fini(&json);
    return rc;
}
