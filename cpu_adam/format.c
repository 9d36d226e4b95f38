/* format.c: names and moments of rules, names of formats, and the bytes of each array. */
#include "cpu_adam/format.h"

#include "cpu_adam/adam.h"

const char *adam_rule_name(enum core_update_rule rule)
{
    static const char *const names[CORE_UPDATE_RULES] = {"adam", "adamw", "lion", "adagrad", "sgd"};
    return (unsigned)rule < CORE_UPDATE_RULES ? names[rule] : "unknown";
}

const char *adam_master_name(enum core_update_master master)
{
    static const char *const names[] = {"split", "bf16", "fp16", "fp32"};
    return (unsigned)master <= CORE_UPDATE_MASTER_F32 ? names[master] : "unknown";
}

const char *adam_type_name(enum core_update_type type)
{
    static const char *const names[] = {"fp32", "bf16", "fp16", "8-bit"};
    return (unsigned)type <= CORE_UPDATE_Q8 ? names[type] : "unknown";
}

bool adam_has_m(enum core_update_rule rule)
{
    return rule != CORE_UPDATE_ADAGRAD;
}

bool adam_has_v(enum core_update_rule rule)
{
    return rule == CORE_UPDATE_ADAM || rule == CORE_UPDATE_ADAMW || rule == CORE_UPDATE_ADAGRAD;
}

size_t adam_type_bytes(enum core_update_type type)
{
    return type == CORE_UPDATE_F32 ? 4 : type == CORE_UPDATE_Q8 ? 1 : 2;
}

uint64_t adam_stream_bytes(const struct adam_options *o, enum adam_stream stream, uint64_t count)
{
    const bool is_split = o->master == CORE_UPDATE_MASTER_SPLIT;
    const bool has_m = adam_has_m(o->rule);
    const bool has_v = adam_has_v(o->rule);
    const uint64_t blocks = count / CORE_UPDATE_Q8_BLOCK + (count % CORE_UPDATE_Q8_BLOCK != 0);
    const uint64_t scales = o->moments == CORE_UPDATE_Q8 ? blocks * sizeof(float) : 0;
    switch (stream) {
    case ADAM_W16: return o->master != CORE_UPDATE_MASTER_F32 ? count * 2 : 0;
    case ADAM_LO16: return is_split ? count * 2 : 0;
    case ADAM_W32: return is_split ? 0 : count * 4;
    case ADAM_G: return count * adam_type_bytes(o->gradients);
    case ADAM_M: return has_m ? count * adam_type_bytes(o->moments) : 0;
    case ADAM_V: return has_v ? count * adam_type_bytes(o->moments) : 0;
    case ADAM_M_SCALE: return has_m ? scales : 0;
    case ADAM_V_SCALE: return has_v ? scales : 0;
    case ADAM_STREAMS:
    default: return 0;
    }
}
