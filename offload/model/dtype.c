/* dtype.c: conversion between element types. */
#include "offload/model/dtype.h"

#include <assert.h>
#include <string.h>

#include "core/base/half.h"

enum model_dtype model_dtype_of(enum kern_type type)
{
    return type == KERN_F32 ? MODEL_F32 : type == KERN_BF16 ? MODEL_BF16 : MODEL_F16;
}

size_t model_dtype_bytes(enum model_dtype dtype)
{
    switch (dtype) {
    case MODEL_F32: return 4;
    case MODEL_F16:
    case MODEL_BF16: return 2;
    case MODEL_OTHER: break;
    }
    return 0;
}

const char *model_dtype_name(enum model_dtype dtype)
{
    static const char *const names[] = {"F32", "F16", "BF16", "other"};
    return names[dtype];
}

const char *model_dtype_config_name(enum model_dtype dtype)
{
    static const char *const names[] = {"float32", "float16", "bfloat16", "other"};
    return names[dtype];
}

enum model_dtype model_dtype_from_name(const char *name)
{
    for (int i = MODEL_F32; i < MODEL_OTHER; i++) {
        if (strcmp(name, model_dtype_name((enum model_dtype)i)) == 0) {
            return (enum model_dtype)i;
        }
    }
    return MODEL_OTHER;
}

enum model_dtype model_dtype_from_config(const char *name)
{
    if (strncmp(name, "torch.", 6) == 0) {
        name += 6;
    }
    for (int i = MODEL_F32; i < MODEL_OTHER; i++) {
        if (strcmp(name, model_dtype_config_name((enum model_dtype)i)) == 0) {
            return (enum model_dtype)i;
        }
    }
    return MODEL_OTHER;
}

static float load_one(const unsigned char *from, enum model_dtype type)
{
    uint16_t half;
    float value;
    if (type == MODEL_F32) {
        memcpy(&value, from, 4);
        return value;
    }
    memcpy(&half, from, 2);
    return type == MODEL_BF16 ? core_bf16_to_f32(half) : core_fp16_to_f32(half);
}

void model_convert(void *to, enum model_dtype to_type, const void *from, enum model_dtype from_type,
                   size_t count)
{
    assert(to_type != MODEL_OTHER && from_type != MODEL_OTHER);
    if (to_type == from_type) {
        memcpy(to, from, count * model_dtype_bytes(to_type));
    } else if (to_type == MODEL_F32 && from_type == MODEL_BF16) {
        core_bf16_widen(from, count, to);
    } else if (to_type == MODEL_BF16 && from_type == MODEL_F32) {
        core_bf16_narrow(from, count, to);
    } else {
        size_t step = model_dtype_bytes(from_type);
        for (size_t i = 0; i < count; i++) {
            float value = load_one((const unsigned char *)from + i * step, from_type);
            switch (to_type) {
            case MODEL_F32: ((float *)to)[i] = value; break;
            case MODEL_F16: ((uint16_t *)to)[i] = core_f32_to_fp16(value); break;
            case MODEL_BF16: ((uint16_t *)to)[i] = core_f32_to_bf16(value); break;
            case MODEL_OTHER: break;
            }
        }
    }
}
