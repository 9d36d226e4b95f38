/* plan_json.c: the keys of `tide plan --json`. */
#include "tools/tide/plan_json.h"

#include "core/base/err.h"
#include "core/json/write.h"
#include "tools/tide/mounts.h"
#include "tools/tide/plan_text.h"

static void write_asked(struct core_json_write *json, const struct tide_engine_options *options)
{
    static const char *const precisions[] = {"bf16", "fp16", "fp32"};
    static const char *const optimizers[] = {"adamw", "adam", "lion", "adagrad", "sgd"};
    static const char *const moments[] = {"fp32", "bf16", "8bit"};
    static const char *const gathers[] = {"exact", "int8"};
    static const char *const reduces[] = {"exact", "int4", "fast"};
    static const char *const bases[] = {"plain", "bf16", "int8", "nf4"};
    core_json_write_object_begin(json, "asked");
    core_json_write_string(json, "model", options->model);
    core_json_write_string(json, "device", options->device != NULL ? options->device : "cpu");
    core_json_write_unsigned(json, "ranks", options->ranks);
    if (options->machine != NULL) {
        core_json_write_string(json, "machine", options->machine);
        core_json_write_unsigned(json, "nodes", options->nodes);
    }
    core_json_write_unsigned(json, "zero_stage", options->zero_stage);
    core_json_write_string(json, "gather", gathers[options->gather]);
    core_json_write_unsigned(json, "gather_within", options->gather_within);
    core_json_write_string(json, "reduce", reduces[options->reduce]);
    core_json_write_unsigned(json, "batch", options->batch);
    core_json_write_unsigned(json, "accum", options->accum);
    core_json_write_unsigned(json, "seq_len", options->length);
    const bool pairs = options->loss == TIDE_LOSS_DPO; /* a pair has two rows */
    core_json_write_real(json, "tokens_per_row",
                         options->tokens_per_row > 0 ? options->tokens_per_row / (pairs ? 2 : 1)
                                                     : options->length);
    core_json_write_string(json, "loss", pairs ? "dpo" : "tokens");
    core_json_write_unsigned(json, "pair_length", cli_plan_pair_length(options));
    core_json_write_string(json, "precision", precisions[options->precision]);
    core_json_write_string(json, "optimizer", optimizers[options->optimizer]);
    core_json_write_string(json, "moments", moments[options->moments]);
    core_json_write_string(json, "base", bases[options->base]);
    core_json_write_unsigned(json, "device_bytes", options->device_bytes);
    core_json_write_unsigned(json, "host_bytes", options->host_bytes);
    struct cli_mount mount;
    core_json_write_array_begin(json, "stores");
    for (size_t i = 0; i < options->store_count; i++) {
        core_json_write_object_begin(json, NULL);
        core_json_write_string(json, "directory", options->stores[i].directory);
        core_json_write_unsigned(json, "bytes", options->stores[i].bytes);
        cli_mount_find(options->stores[i].directory, &mount);
        core_json_write_string(json, "device", mount.device);
        core_json_write_string(json, "file_system", mount.type);
        core_json_write_object_end(json);
    }
    core_json_write_array_end(json);
    core_json_write_object_end(json);
}

static void write_parts(struct core_json_write *json, const struct tide_plan *plan)
{
    struct tide_plan_part part = {.struct_bytes = sizeof part};
    core_json_write_array_begin(json, "parts");
    for (unsigned i = 0; tide_plan_part_at(plan, i, &part) == 0; i++) {
        core_json_write_object_begin(json, NULL);
        core_json_write_string(json, "tier", cli_plan_place_name(part.tier));
        core_json_write_string(json, "what", part.what);
        core_json_write_unsigned(json, "bytes", part.bytes);
        core_json_write_object_end(json);
        part = (struct tide_plan_part){.struct_bytes = sizeof part};
    }
    core_json_write_array_end(json);
}

static void write_step(struct core_json_write *json, const struct tide_plan_info *info)
{
    core_json_write_object_begin(json, "step");
    core_json_write_real(json, "seconds", info->step_seconds);
    core_json_write_real(json, "clipped_seconds", info->clipped_seconds);
    core_json_write_real(json, "tokens_per_second", info->tokens_per_second);
    core_json_write_string(json, "bottleneck", info->bottleneck);
    core_json_write_unsigned(json, "store_read_bytes", info->store_read_bytes);
    core_json_write_unsigned(json, "store_write_bytes", info->store_write_bytes);
    core_json_write_unsigned(json, "h2d_bytes", info->up_bytes);
    core_json_write_unsigned(json, "d2h_bytes", info->down_bytes);
    core_json_write_unsigned(json, "gather_bytes", info->gather_bytes);
    core_json_write_unsigned(json, "reduce_bytes", info->reduce_bytes);
    core_json_write_unsigned(json, "gather_between_bytes", info->gather_between_bytes);
    core_json_write_unsigned(json, "reduce_between_bytes", info->reduce_between_bytes);
    core_json_write_real(json, "store_write_tb_per_day", cli_plan_wear_tb(info));
    core_json_write_unsigned(json, "commands", info->commands);
    core_json_write_object_end(json);
}

static void write_alternatives(struct core_json_write *json, const struct tide_plan *plan)
{
    struct tide_plan_alternative other = {.struct_bytes = sizeof other};
    core_json_write_array_begin(json, "alternatives");
    for (unsigned i = 0; tide_plan_alternative_at(plan, i, &other) == 0; i++) {
        core_json_write_object_begin(json, NULL);
        core_json_write_string(json, "acts", cli_plan_acts_name(other.acts));
        core_json_write_string(json, "order", cli_plan_order_name(other.order));
        core_json_write_string(json, "timing", cli_plan_timing_name(other.timing));
        core_json_write_real(json, "seconds", other.step_seconds);
        core_json_write_unsigned(json, "device_bytes", other.device_bytes);
        core_json_write_unsigned(json, "host_bytes", other.host_bytes);
        core_json_write_unsigned(json, "store_write_bytes", other.store_write_bytes);
        core_json_write_string(json, "why_not", other.why);
        core_json_write_object_end(json);
        other.struct_bytes = sizeof other;
    }
    core_json_write_array_end(json);
}

static int write_what_if(struct core_json_write *json, const struct tide_plan *plan)
{
    struct tide_plan_what_if parts[CLI_WHAT_IFS_MAX];
    size_t count = 0;
    const int rc = cli_plan_what_ifs(plan, parts, &count);
    core_json_write_array_begin(json, "what_if");
    for (size_t i = 0; rc == 0 && i < count; i++) {
        core_json_write_object_begin(json, NULL);
        core_json_write_string(json, "part", parts[i].part);
        core_json_write_real(json, "seconds", parts[i].step_seconds);
        core_json_write_object_end(json);
    }
    core_json_write_array_end(json);
    return rc;
}

int cli_plan_write_json(struct core_json_write *json, const char *key, const struct tide_plan *plan,
                        const struct tide_engine_options *options, bool what_if)
{
    struct tide_plan_info info = {.struct_bytes = sizeof info};
    int rc = tide_plan_describe(plan, &info);
    if (rc != 0) {
        return core_err_adopt(rc, tide_last_error());
    }
    core_json_write_object_begin(json, key);
    core_json_write_integer(json, "schema_version", PLAN_JSON_VERSION);
    write_asked(json, options);
    core_json_write_unsigned(json, "parameters", info.parameters);
    core_json_write_unsigned(json, "trained_parameters", info.trained_parameters);
    core_json_write_object_begin(json, "tiers");
    core_json_write_unsigned(json, "device_bytes", info.device_bytes);
    core_json_write_unsigned(json, "host_bytes", info.host_bytes);
    core_json_write_unsigned(json, "store_bytes", info.store_bytes);
    core_json_write_object_end(json);
    core_json_write_object_begin(json, "kept_base");
    core_json_write_unsigned(json, "bytes", info.kept_base_bytes);
    core_json_write_bool(json, "exists", info.kept_base_exists != 0);
    core_json_write_object_end(json);
    write_parts(json, plan);
    core_json_write_object_begin(json, "chosen");
    core_json_write_string(json, "acts", cli_plan_acts_name(info.acts));
    core_json_write_string(json, "order", cli_plan_order_name(info.order));
    core_json_write_string(json, "timing", cli_plan_timing_name(info.timing));
    core_json_write_unsigned(json, "weight_slots", info.weight_slots);
    core_json_write_unsigned(json, "sectioned_blocks", info.sectioned_blocks);
    core_json_write_unsigned(json, "state_slots", info.state_slots);
    core_json_write_unsigned(json, "chunk_elements", info.chunk_elements);
    core_json_write_object_end(json);
    write_step(json, &info);
    write_alternatives(json, plan);
    rc = what_if ? write_what_if(json, plan) : 0;
    core_json_write_real(json, "plan_seconds", info.plan_seconds);
    core_json_write_object_end(json);
    return rc;
}
