/* report_compare.c: compares this run with the report of an earlier one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/json/json.h"
#include "tools/ds_nvme_bench/report.h"

struct kept {
    const char *dir;
    const char *op;
    int64_t block_bytes;
    int64_t depth;
    int64_t threads;
    double median;
};

static bool matches(const struct kept *kept, const struct bench_result *result,
                    const struct bench_point *point)
{
    return strcmp(kept->dir, result->target.path) == 0 &&
           strcmp(kept->op, bench_op_name(point->params.op)) == 0 &&
           kept->block_bytes == point->params.block_bytes && kept->depth == point->params.depth &&
           kept->threads == point->params.threads;
}

static const struct bench_point *find(const struct bench_report *report, const struct kept *kept)
{
    for (unsigned r = 0; r < report->count; r++) {
        const struct bench_result *result = &report->results[r];
        for (unsigned p = 0; p < result->sweep.count; p++) {
            if (matches(kept, result, &result->sweep.points[p])) {
                return &result->sweep.points[p];
            }
        }
    }
    return NULL;
}

static int read_point(const struct core_json *doc, const struct core_json_value *value,
                      struct kept *out)
{
    const struct core_json_value *params = NULL;
    int rc = core_json_get_string(doc, value, "dir", &out->dir);
    if (rc != 0 || core_json_get(doc, value, "params", CORE_JSON_OBJECT, &params) != 0 ||
        core_json_get_string(doc, params, "op", &out->op) != 0 ||
        core_json_get_integer(doc, params, "block_size", &out->block_bytes) != 0 ||
        core_json_get_integer(doc, params, "queue_depth", &out->depth) != 0 ||
        core_json_get_integer(doc, params, "threads", &out->threads) != 0 ||
        core_json_get_real(doc, value, "median", &out->median) != 0) {
        return -EINVAL;
    }
    return 0;
}

/* Returns 1 if this run has the point, else 0. */
static int compare_point(const struct bench_report *report, const struct kept *kept,
                         double tolerance, FILE *out, unsigned *slower)
{
    const struct bench_point *now = find(report, kept);
    if (now == NULL) {
        return 0;
    }
    double change = kept->median > 0 ? now->median / kept->median - 1 : 0;
    if (change < -tolerance) {
        ++*slower;
        fprintf(out, "slower: %s %s, %lld KiB x %lld x %lld: %.2f GB/s, was %.2f (%+.1f %%)\n",
                kept->dir, kept->op, (long long)kept->block_bytes / 1024, (long long)kept->depth,
                (long long)kept->threads, now->median / 1e9, kept->median / 1e9, change * 100);
    }
    return 1;
}

static int load(const char *path, struct core_json **doc, const struct core_json_value **points)
{
    int64_t version = 0;
    int rc = core_json_load(path, NULL, doc);
    if (rc != 0) {
        return rc;
    }
    const struct core_json_value *root = core_json_root(*doc);
    rc = core_json_get_integer(*doc, root, "schema_version", &version);
    if (rc != 0) {
        return -EINVAL;
    }
    if (version != BENCH_SCHEMA_VERSION) {
        return core_err_set(-EINVAL, "%s has schema version %lld; this build compares with %d",
                            path, (long long)version, BENCH_SCHEMA_VERSION);
    }
    return core_json_get(*doc, root, "points", CORE_JSON_ARRAY, points) == 0 ? 0 : -EINVAL;
}

int bench_report_comparable(const char *path)
{
    struct core_json *doc = NULL;
    const struct core_json_value *points = NULL;
    int rc = load(path, &doc, &points);
    for (size_t i = 0; rc == 0 && i < core_json_count(points); i++) {
        struct kept kept;
        rc = read_point(doc, core_json_at(points, i), &kept);
    }
    core_json_destroy(doc);
    return rc;
}

int bench_report_compare(const struct bench_report *report, const char *path, double tolerance,
                         FILE *out, unsigned *slower)
{
    struct core_json *doc = NULL;
    const struct core_json_value *points = NULL;
    unsigned shared = 0;
    *slower = 0;
    int rc = load(path, &doc, &points);
    for (size_t i = 0; rc == 0 && i < core_json_count(points); i++) {
        struct kept kept;
        rc = read_point(doc, core_json_at(points, i), &kept);
        if (rc == 0) {
            shared += (unsigned)compare_point(report, &kept, tolerance, out, slower);
        }
    }
    const size_t kept_count = rc == 0 ? core_json_count(points) : 0;
    core_json_destroy(doc);
    if (rc == 0 && shared > 0 && shared < kept_count) {
        fprintf(out, "Compared: %u of the %zu points of %s; the others were not measured now.\n",
                shared, kept_count, path);
    }
    if (rc == 0 && shared == 0) {
        rc = core_err_set(-EINVAL,
                          "%s has no point in common with this run (directory, operation, block "
                          "size, depth and threads); measure the same settings with --mode point",
                          path);
    }
    return rc;
}
