/* plan_text.c: prints a plan as tables and sentences. */
#include "tools/tide/plan_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "tools/tide/cli.h"
#include "tools/tide/mounts.h"

enum { TAPE_LINE_BYTES = 512, ALTERNATIVES = 3 };

const char *cli_plan_place_name(uint64_t place)
{
    static const char *const names[] = {"auto", "device", "host", "store"};
    return place < 4 ? names[place] : "?";
}

const char *cli_plan_acts_name(uint64_t acts)
{
    static const char *const names[] = {"auto", "keep", "recompute", "host", "store"};
    return acts < 5 ? names[acts] : "?";
}

const char *cli_plan_order_name(uint64_t order)
{
    static const char *const names[] = {"auto", "layer", "micro"};
    return order < 3 ? names[order] : "?";
}

const char *cli_plan_timing_name(uint64_t timing)
{
    static const char *const names[] = {"auto", "deferred", "inside", "split", "speculative"};
    return timing < 5 ? names[timing] : "?";
}

double cli_plan_wear_tb(const struct tide_plan_info *info)
{
    return info->step_seconds > 0
               ? (double)info->store_write_bytes / info->step_seconds * 86400 / 1e12
               : 0;
}

static const char *gb(uint64_t bytes, char *out, size_t room)
{
    snprintf(out, room, "%.3f GB", (double)bytes / 1e9);
    return out;
}

static int add_tier(struct cli_table *table, const struct tide_plan *plan, uint32_t tier,
                    const char *name, uint64_t bytes)
{
    char text[64];
    int rc = cli_table_add(table, (const char *const[]){name, "", gb(bytes, text, sizeof text)});
    struct tide_plan_part part = {.struct_bytes = sizeof part};
    for (unsigned i = 0; rc == 0 && tide_plan_part_at(plan, i, &part) == 0; i++) {
        if (part.tier == tier && part.bytes > 0) {
            rc = cli_table_add(
                table, (const char *const[]){"", part.what, gb(part.bytes, text, sizeof text)});
        }
        part = (struct tide_plan_part){.struct_bytes = sizeof part};
    }
    return rc;
}

static int print_tiers(const struct tide_plan *plan, const struct tide_plan_info *info,
                       FILE *stream)
{
    struct cli_table *table = NULL;
    int rc = cli_table_create(3, &table);
    if (rc != 0) {
        return rc;
    }
    rc = add_tier(table, plan, TIDE_DEVICE, "DEVICE", info->device_bytes);
    if (rc == 0 && (rc = add_tier(table, plan, TIDE_HOST, "HOST", info->host_bytes)) == 0 &&
        (rc = add_tier(table, plan, TIDE_STORE, "STORE", info->store_bytes)) == 0) {
        cli_table_print(table, stream, "  ");
    }
    cli_table_destroy(table);
    return rc;
}

/* Shows the drives, because a folder may be on the system disk by mistake. */
static void print_stores(const struct tide_engine_options *options, FILE *stream)
{
    struct cli_mount mount;
    const bool memory = options->io != NULL && strcmp(options->io, "mem") == 0;
    for (size_t i = 0; !memory && i < options->store_count; i++) {
        cli_mount_find(options->stores[i].directory, &mount);
        fprintf(stream, "store: %s, on %s (%s, mounted at %s)\n", options->stores[i].directory,
                mount.device[0] != '\0' ? mount.device : "an unknown drive", mount.type,
                mount.point);
    }
}

static void print_step(const struct tide_plan_info *info, FILE *stream)
{
    fprintf(stream, "step: %.3g s, %.*f tokens/s, bottleneck: %s\n", info->step_seconds,
            cli_rate_digits(info->tokens_per_second), info->tokens_per_second, info->bottleneck);
    if (info->clipped_seconds > info->step_seconds) {
        fprintf(stream,
                "      %.3g s if the norm is above --clip; otherwise updates do not wait for it\n",
                info->clipped_seconds);
    }
}

/* Prints the fastest plans that were not chosen, and why. */
static void print_alternatives(const struct tide_plan *plan, FILE *stream)
{
    struct tide_plan_alternative other = {.struct_bytes = sizeof other};
    for (unsigned i = 0; i < ALTERNATIVES && tide_plan_alternative_at(plan, i, &other) == 0; i++) {
        fprintf(stream, "%sactivations %s, update %s: %.3g s in %.3f GB: %s\n",
                i == 0 ? "instead of this: " : "                 ", cli_plan_acts_name(other.acts),
                cli_plan_timing_name(other.timing), other.step_seconds,
                (double)(other.device_bytes + other.host_bytes) / 1e9, other.why);
        other.struct_bytes = sizeof other;
    }
}

static void print_machine(const struct tide_engine_options *options, FILE *stream)
{
    if (options->machine != NULL) {
        fprintf(stream,
                "machine: %s, %" PRIu64 " x %" PRIu64
                " ranks; tiers below are per node, their parts per rank\n\n",
                options->machine, options->nodes, options->ranks / options->nodes);
    }
}

uint64_t cli_plan_pair_length(const struct tide_engine_options *options)
{
    const uint64_t given = options->pair_length > 0 ? options->pair_length
                                                    : 2 * (uint64_t)options->length;
    return options->loss == TIDE_LOSS_DPO ? given : 0;
}

int cli_plan_print(const struct tide_plan *plan, const struct tide_engine_options *options,
                   FILE *stream)
{
    struct tide_plan_info info = {.struct_bytes = sizeof info};
    char all[CLI_NUMBER_BYTES];
    char trained[CLI_NUMBER_BYTES];
    char sections[64] = "";
    const bool pairs = options->loss == TIDE_LOSS_DPO;
    char mean[96] = "without --data, rows are assumed to be full";
    char together[64] = "";
    int rc = tide_plan_describe(plan, &info);
    if (rc != 0) {
        return core_err_adopt(rc, tide_last_error());
    }
    if (options->tokens_per_row > 0) {
        snprintf(mean, sizeof mean, "the data has %.1f tokens per %s on average",
                 options->tokens_per_row, pairs ? "pair" : "row");
    }
    if (pairs) {
        snprintf(together, sizeof together, " (a pair takes %" PRIu64 ")",
                 cli_plan_pair_length(options));
    }
    fprintf(stream,
            "%s: %s parameters, %s of them trained; a step has %" PRIu32 " x %" PRIu32
            " %s of %" PRIu32 " tokens%s%s; %s\n\n",
            options->model, cli_count_print(info.parameters, all),
            cli_count_print(info.trained_parameters, trained), options->accum * options->ranks,
            options->batch, pairs ? "pairs of rows" : "rows", options->length, together,
            options->ranks > 1 ? " over all ranks" : "", mean);
    print_machine(options, stream);
    rc = print_tiers(plan, &info, stream);
    if (rc != 0) {
        return rc;
    }
    if (info.sectioned_blocks > 0) {
        snprintf(sections, sizeof sections, "blocks by sections: %" PRIu64 ", ",
                 info.sectioned_blocks);
    }
    fprintf(stream,
            "\nactivations: %s; order: %s; update: %s; %" PRIu32 " weight slots, %s%" PRIu32
            " state slots, chunks of %" PRIu64 " elements; %" PRIu64 " commands\n",
            cli_plan_acts_name(info.acts), cli_plan_order_name(info.order),
            cli_plan_timing_name(info.timing), info.weight_slots, sections, info.state_slots,
            info.chunk_elements, info.commands);
    print_step(&info, stream);
    print_stores(options, stream);
    fprintf(stream, "drives: %.3f GB read and %.3f GB written per step, %.1f TB written per day\n",
            (double)info.store_read_bytes / 1e9, (double)info.store_write_bytes / 1e9,
            cli_plan_wear_tb(&info));
    if (info.kept_base_bytes > 0) {
        fprintf(stream, "base: %.3f GB beside the first store, %s\n",
                (double)info.kept_base_bytes / 1e9,
                info.kept_base_exists ? "kept by an earlier run and read from there"
                                      : "which the first run writes and later ones read");
    }
    print_alternatives(plan, stream);
    fprintf(stream, "links: %.3f GB up and %.3f GB down per step; planned in %.3g s\n",
            (double)info.up_bytes / 1e9, (double)info.down_bytes / 1e9, info.plan_seconds);
    if (options->ranks > 1) {
        fprintf(
            stream,
            "ranks: each receives %.3f GB of weights and %.3f GB of gradients per step, %.3f and "
            "%.3f GB of them from other nodes\n",
            (double)info.gather_bytes / 1e9, (double)info.reduce_bytes / 1e9,
            (double)info.gather_between_bytes / 1e9, (double)info.reduce_between_bytes / 1e9);
        if (info.reduce == TIDE_REDUCE_FAST) {
            fprintf(stream,
                    "reduce fast: gradients are added inside nodes first, on GPUs by NCCL, so "
                    "bits differ from those of exact sums\n");
        }
    }
    return 0;
}

static int by_seconds(const void *a, const void *b)
{
    const double one = ((const struct tide_plan_what_if *)a)->step_seconds;
    const double other = ((const struct tide_plan_what_if *)b)->step_seconds;
    return (one > other) - (one < other);
}

int cli_plan_what_ifs(const struct tide_plan *plan, struct tide_plan_what_if out[CLI_WHAT_IFS_MAX],
                      size_t *count)
{
    int rc = 0;
    *count = 0;
    while (*count < CLI_WHAT_IFS_MAX) {
        struct tide_plan_what_if *one = &out[*count];
        *one = (struct tide_plan_what_if){.struct_bytes = sizeof *one};
        rc = tide_plan_what_if_at(plan, (unsigned)*count, one);
        if (rc != 0) {
            break;
        }
        ++*count;
    }
    qsort(out, *count, sizeof *out, by_seconds);
    return rc == 0 || rc == -ENOENT ? 0 : core_err_adopt(rc, tide_last_error());
}

int cli_plan_print_what_if(const struct tide_plan *plan, FILE *stream)
{
    struct tide_plan_info info = {.struct_bytes = sizeof info};
    struct tide_plan_what_if parts[CLI_WHAT_IFS_MAX];
    struct cli_table *table = NULL;
    size_t count = 0;
    int rc = tide_plan_describe(plan, &info);
    if (rc != 0) {
        return core_err_adopt(rc, tide_last_error());
    }
    rc = cli_plan_what_ifs(plan, parts, &count);
    if (rc != 0) {
        return rc;
    }
    rc = cli_table_create(3, &table);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        char seconds[32];
        char saved[32];
        const double part = 1 - parts[i].step_seconds / info.step_seconds;
        snprintf(seconds, sizeof seconds, "%.3g s", parts[i].step_seconds);
        snprintf(saved, sizeof saved, "no shorter");
        if (part > 0.0005) {
            snprintf(saved, sizeof saved, "%.1f %% shorter", part * 100);
        }
        rc = cli_table_add(table, (const char *const[]){parts[i].part, seconds, saved});
    }
    if (rc == 0) {
        fputs("\na step with twice as much of one part:\n", stream);
        cli_table_print(table, stream, "  ");
    }
    cli_table_destroy(table);
    return rc;
}

void cli_plan_print_short(const struct tide_plan *plan, const struct tide_engine_options *options,
                          FILE *stream)
{
    struct tide_plan_info info = {.struct_bytes = sizeof info};
    char all[CLI_NUMBER_BYTES];
    if (tide_plan_describe(plan, &info) != 0) {
        return;
    }
    fprintf(stream,
            "plan: %s parameters; DEVICE %.3f GB, HOST %.3f GB, STORE %.3f GB; activations %s, "
            "update %s\n",
            cli_count_print(info.parameters, all), (double)info.device_bytes / 1e9,
            (double)info.host_bytes / 1e9, (double)info.store_bytes / 1e9,
            cli_plan_acts_name(info.acts), cli_plan_timing_name(info.timing));
    print_step(&info, stream);
    print_stores(options, stream);
    if (info.store_write_bytes > 0) {
        fprintf(stream, "drives: %.3f GB written per step, %.1f TB per day\n",
                (double)info.store_write_bytes / 1e9, cli_plan_wear_tb(&info));
    }
}

void cli_plan_print_tape(const struct tide_plan *plan, FILE *stream)
{
    char line[TAPE_LINE_BYTES];
    for (unsigned i = 0; tide_plan_tape_line(plan, i, line, sizeof line) == 0; i++) {
        fprintf(stream, "%s\n", line);
    }
}
