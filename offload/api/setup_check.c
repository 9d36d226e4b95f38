/* setup_check.c: checks the public options. Pure, except that it asks which back ends work here. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "aio/backend.h"
#include "core/base/err.h"
#include "core/base/team.h"
#include "core/coll/coll.h"
#include "core/dev/dev.h"
#include "offload/api/setup.h"
#include "offload/model/adapter.h"
#include "offload/plan/layout.h"
#include "offload/plan/shard.h"

static int check_range(const char *name, double value, double low, double high)
{
    if (value >= low && value <= high) {
        return 0;
    }
    const bool below = high < 1 && nextafterf((float)high, 1) >= 1;
    return core_err_set(-EINVAL, "%s is %.10g; expected %.10g to %s%.10g", name, value, low,
                        below ? "below " : "", below ? 1 : high);
}

static int check_choices(const struct tide_engine_options *given)
{
    const struct {
        const char *name;
        uint64_t value;
        uint32_t last;
    } choices[] = {
        {"precision", given->precision, TIDE_FP32},
        {"optimizer", given->optimizer, TIDE_SGD},
        {"moments", given->moments, TIDE_MOMENTS_8BIT},
        {"weights", given->weights, TIDE_STORE},
        {"states", given->states, TIDE_STORE},
        {"grads", given->grads, TIDE_STORE},
        {"acts", given->acts, TIDE_ACTS_STORE},
        {"order", given->order, TIDE_ORDER_MICRO},
        {"timing", given->timing, TIDE_TIMING_SPECULATIVE},
        {"zero_stage", given->zero_stage, 3},
        {"base", given->base, TIDE_BASE_NF4},
        {"lora_dora", given->lora_dora, 1},
        {"gather", given->gather, TIDE_GATHER_INT8},
        {"reduce", given->reduce, TIDE_REDUCE_FAST},
        {"loss", given->loss, TIDE_LOSS_DPO},
    };
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        if (choices[i].value > choices[i].last) {
            return core_err_set(-EINVAL, "%s is %" PRIu64 "; expected 0 to %" PRIu32,
                                choices[i].name, choices[i].value, choices[i].last);
        }
    }
    return 0;
}

static int check_numbers(const struct tide_engine_options *given)
{
    const double most = 1e30;
    const double almost_one = (double)nextafterf(1, 0); /* the update computes in fp32 */
    const struct {
        const char *name;
        double value;
        double low;
        double high;
    } ranges[] = {
        {"batch", given->batch, 1, 1 << 20},
        {"length", given->length, 1, 1 << 24},
        {"accum", given->accum, 0, 1 << 14},
        {"ranks", given->ranks, 0, given->machine != NULL ? COLL_WORLD_MAX : 64},
        {"threads", given->threads, 0, CORE_TEAM_MAX},
        {"straggler", given->straggler, 0, 1000},
        {"clip", given->clip, 0, most},
        {"lora_rank", given->lora_rank, 0, 1 << 16},
        {"lora_alpha", given->lora_alpha, 0, most},
        {"lora_dropout", given->lora_dropout, 0, MODEL_LORA_DROPOUT_MAX},
        {"dpo_beta", given->dpo_beta, 0, 1e6},
        {"decay", given->decay, 0, most},
        {"eps", given->eps, 0, most},
        {"beta1", (double)(float)given->beta1, 0, almost_one},
        {"beta2", (double)(float)given->beta2, 0, almost_one},
        {"loss_scale", given->loss_scale, 0, most},
        {"initial_loss_scale", given->initial_loss_scale, 0, most},
        {"min_loss_scale", given->min_loss_scale, 0, most},
        {"weight_slots", given->weight_slots, 0, PLAN_SLOT_MAX},
        {"state_slots", given->state_slots, 0, PLAN_STATE_SLOT_MAX},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        int rc = check_range(ranges[i].name, ranges[i].value, ranges[i].low, ranges[i].high);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int check_scales(const struct tide_engine_options *given)
{
    const double first = given->initial_loss_scale > 0 ? given->initial_loss_scale
                                                       : SETUP_FIRST_SCALE;
    const double least = given->min_loss_scale > 0 ? given->min_loss_scale : SETUP_LEAST_SCALE;
    return first >= least
               ? 0
               : core_err_set(-EINVAL, "min_loss_scale is %g, above initial_loss_scale, %g", least,
                              first);
}

static int check_chunk(const struct tide_engine_options *given)
{
    const uint64_t most = UINT64_C(1) << 36;
    return given->chunk_elements % PLAN_CUT_ELEMENTS == 0 && given->chunk_elements <= most
               ? 0
               : core_err_set(-EINVAL,
                              "chunk_elements is %" PRIu64
                              "; expected a multiple of %d up to %" PRIu64,
                              given->chunk_elements, PLAN_CUT_ELEMENTS, most);
}

static int check_names(const struct tide_engine_options *given)
{
    const struct {
        const char *name;
        const char *const *items;
        size_t count;
    } lists[] = {{"frozen", given->frozen, given->frozen_count},
                 {"lora_targets", given->lora_targets, given->lora_target_count},
                 {"modules_to_save", given->modules_to_save, given->modules_to_save_count}};
    for (size_t l = 0; l < sizeof lists / sizeof lists[0]; l++) {
        for (size_t i = 0; i < lists[l].count; i++) {
            if (lists[l].items == NULL || lists[l].items[i] == NULL) {
                return core_err_set(-EINVAL, "%s[%zu] is NULL", lists[l].name, i);
            }
        }
    }
    return 0;
}

static int check_lora(const struct tide_engine_options *given)
{
    const bool any = given->lora_alpha > 0 || given->lora_dropout > 0 || given->lora_rslora != 0 ||
                     given->lora_dora != 0 || given->lora_target_count > 0 ||
                     given->modules_to_save_count > 0;
    const bool adapters = given->lora_rank > 0 || given->adapter != NULL;
    if (!adapters && any) {
        return core_err_set(-EINVAL, "options of adapters need lora_rank (--lora R)");
    }
    if (adapters && given->frozen_count > 0) {
        return core_err_set(
            -EINVAL, "frozen (--freeze) has no use with adapters (--lora), which freeze the whole "
                     "model except modules_to_save (--modules-to-save)");
    }
    return 0;
}

/* The reference of DPO is the model without its adapters, so only adapters may be trained. */
static int check_loss(const struct tide_engine_options *given)
{
    if (given->loss != TIDE_LOSS_DPO) {
        return given->dpo_beta > 0 ? core_err_set(-EINVAL, "dpo_beta (--beta) needs the loss of "
                                                           "pairs (--loss dpo)")
               : given->pair_length > 0
                   ? core_err_set(-EINVAL, "pair_length needs the loss of pairs (--loss dpo)")
                   : 0;
    }
    if (given->lora_rank == 0 && given->adapter == NULL) {
        return core_err_set(-EINVAL, "the loss of pairs (--loss dpo) trains adapters: give "
                                     "lora_rank (--lora R), or adapter (--adapter DIR)");
    }
    return given->modules_to_save_count > 0
               ? core_err_set(-ENOTSUP, "the loss of pairs (--loss dpo) cannot train whole modules "
                                        "(--modules-to-save): its reference would need their "
                                        "original weights beside the trained ones; leave them out")
               : 0;
}

/* A plan may name an absent device, but not an unknown one. */
static int check_device(const struct tide_engine_options *given)
{
    if (given->machine != NULL) {
        return 0; /* the file names the device, and nothing runs */
    }
    const char *device = given->device != NULL ? given->device : "cpu";
    const size_t length = strcspn(device, ":");
    const char *name;
    for (unsigned i = 0; (name = dev_kind_name(i)) != NULL; i++) {
        if (strlen(name) == length && strncmp(name, device, length) == 0) {
            return 0;
        }
    }
    return core_err_set(-EINVAL, "unknown device \"%s\" (expected cpu, cuda, cuda:N or cuda:N,M)",
                        device);
}

/* A plan may name an I/O back end that fails here, but not an unknown one. */
static int check_io(const struct tide_engine_options *given, bool here)
{
    char reason[AIO_REASON_BYTES];
    const struct aio_backend *found;
    int rc = given->io != NULL ? aio_backend_choose(given->io, false, reason, sizeof reason, &found)
                               : 0;
    return here || rc == -EINVAL ? rc : 0;
}

/* Several nodes need a machine's file, which has the rates and drives. Nothing runs on that
 * machine. */
static int check_machine(const struct tide_engine_options *given, bool here)
{
    if (given->machine == NULL) {
        return given->nodes <= 1 ? 0
                                 : core_err_set(-EINVAL,
                                                "nodes is %" PRIu64 ", but machine is NULL, which "
                                                "allows only 1",
                                                given->nodes);
    }
    if (here) {
        return core_err_set(-EINVAL, "`machine` is for plans; an engine runs on this machine");
    }
    return given->rates == NULL && given->store_count == 0
               ? 0
               : core_err_set(-EINVAL,
                              "`machine` excludes `rates` and `stores`: its file has them");
}

int setup_check(const struct tide_engine_options *given, bool here)
{
    int rc = check_machine(given, here);
    if (rc != 0) {
        return rc;
    }
    rc = check_choices(given);
    if (rc != 0) {
        return rc;
    }
    rc = check_numbers(given);
    if (rc != 0) {
        return rc;
    }
    rc = check_scales(given);
    if (rc != 0) {
        return rc;
    }
    rc = check_chunk(given);
    if (rc != 0) {
        return rc;
    }
    rc = check_names(given);
    if (rc != 0) {
        return rc;
    }
    rc = check_lora(given);
    if (rc != 0) {
        return rc;
    }
    rc = check_loss(given);
    if (rc != 0) {
        return rc;
    }
    rc = check_device(given);
    if (rc != 0) {
        return rc;
    }
    return check_io(given, here);
}
