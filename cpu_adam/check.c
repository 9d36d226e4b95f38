/* check.c: checks a call's range and arrays before anything is written. */
#include <errno.h>
#include <inttypes.h>

#include "core/base/err.h"
#include "cpu_adam/description.h"

enum { ARRAYS_MAX = ADAM_STREAMS };

struct span {
    const char *name;
    const void *base;
    uint64_t bytes;
    size_t element_bytes;
};

static bool is_block_edge(const struct adam *adam, uint64_t index)
{
    return index % CORE_UPDATE_Q8_BLOCK == 0 || index == adam->options.count;
}

static int check_range(const struct adam *adam, const struct adam_arrays *arrays, uint64_t begin,
                       uint64_t end)
{
    const uint64_t count = adam->options.count;
    if (arrays->first > count || arrays->count > count - arrays->first) {
        return core_err_set(-EINVAL,
                            "window of %" PRIu64 " parameters at %" PRIu64
                            " exceeds the array of %" PRIu64,
                            arrays->count, arrays->first, count);
    }
    if (begin > end || begin < arrays->first || end > arrays->first + arrays->count) {
        return core_err_set(-EINVAL,
                            "range %" PRIu64 " to %" PRIu64 " is outside the window of %" PRIu64
                            " parameters at %" PRIu64,
                            begin, end, arrays->count, arrays->first);
    }
    if (adam->options.moments == CORE_UPDATE_Q8 && begin < end &&
        (arrays->first % CORE_UPDATE_Q8_BLOCK != 0 || begin % CORE_UPDATE_Q8_BLOCK != 0 ||
         !is_block_edge(adam, end))) {
        return core_err_set(-EINVAL,
                            "8-bit moments must be cut at multiples of %d, not window %" PRIu64
                            ", range %" PRIu64 " to %" PRIu64,
                            CORE_UPDATE_Q8_BLOCK, arrays->first, begin, end);
    }
    return 0;
}

static size_t list_spans(const struct adam *adam, const struct adam_arrays *a, bool gradients,
                         struct span spans[ARRAYS_MAX])
{
    static const char *const names[ADAM_STREAMS] = {"w16", "lo16", "w32",     "g",
                                                    "m",   "v",    "m_scale", "v_scale"};
    const void *const bases[ADAM_STREAMS] = {a->w16, a->lo16, a->w32,     a->g,
                                             a->m,   a->v,    a->m_scale, a->v_scale};
    size_t listed = 0;
    for (int i = 0; i < ADAM_STREAMS; i++) {
        const uint64_t bytes = adam_stream_bytes(&adam->options, (enum adam_stream)i, a->count);
        if (bytes > 0 && (gradients || i != ADAM_G)) {
            const bool is_scale = i == ADAM_M_SCALE || i == ADAM_V_SCALE;
            spans[listed++] = (struct span){
                .name = names[i],
                .base = bases[i],
                .bytes = bytes,
                .element_bytes = is_scale ? sizeof(float) : (size_t)(bytes / a->count),
            };
        }
    }
    return listed;
}

static int check_spans(const struct span *spans, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct span *s = &spans[i];
        const uintptr_t base = (uintptr_t)s->base;
        if (base == 0 || base % s->element_bytes != 0) {
            return core_err_set(-EINVAL, "%s at %p is not aligned to %zu bytes", s->name, s->base,
                                s->element_bytes);
        }
        if (base > UINTPTR_MAX - s->bytes) {
            return core_err_set(-EINVAL,
                                "%s (%" PRIu64 " bytes) at %p wraps around the address space",
                                s->name, s->bytes, s->base);
        }
        for (size_t j = 0; j < i; j++) {
            const uintptr_t other = (uintptr_t)spans[j].base;
            if (base < other + spans[j].bytes && other < base + s->bytes) {
                return core_err_set(
                    -EINVAL, "%s (%p, %" PRIu64 " bytes) and %s (%p, %" PRIu64 " bytes) overlap",
                    spans[j].name, spans[j].base, spans[j].bytes, s->name, s->base, s->bytes);
            }
        }
    }
    return 0;
}

int adam_check_arrays(const struct adam *adam, const struct adam_arrays *arrays, uint64_t begin,
                      uint64_t end, bool gradients)
{
    int rc = check_range(adam, arrays, begin, end);
    if (rc != 0 || begin == end) {
        return rc;
    }
    struct span spans[ARRAYS_MAX];
    return check_spans(spans, list_spans(adam, arrays, gradients, spans));
}
