/* layout_buffers.c: the list of a layout's buffers. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/size.h"
#include "offload/plan/layout_internal.h"

int plan_layout_add(struct plan_layout *layout, const char *name, enum plan_tier tier,
                    enum plan_consumer consumer, uint64_t bytes, uint32_t *out)
{
    if (bytes == 0) {
        return 0;
    }
    if (layout->count == layout->room) {
        uint32_t wider = layout->room == 0 ? 256 : layout->room * 2;
        wider = wider < PLAN_NONE ? wider : PLAN_NONE; /* PLAN_NONE is no index */
        struct plan_buffer *moved = wider == layout->room
                                        ? NULL
                                        : realloc(layout->buffers, wider * sizeof *moved);
        if (moved == NULL) {
            return core_err_set(-ENOMEM, "out of memory for more than %u buffers of the plan",
                                layout->room);
        }
        layout->buffers = moved;
        layout->room = wider;
    }
    struct plan_buffer *buffer = &layout->buffers[layout->count];
    *buffer = (struct plan_buffer){
        .tier = (uint8_t)tier, .consumer = (uint8_t)consumer, .twin = PLAN_NONE, .bytes = bytes};
    snprintf(buffer->name, sizeof buffer->name, "%s", name);
    if (tier != PLAN_APPLICATION) {
        buffer->offset = layout->tier_bytes[tier];
        layout->tier_bytes[tier] += core_round_up(bytes, PLAN_ALIGN_BYTES);
    }
    *out = layout->count++;
    return 0;
}

int plan_layout_add_ring(struct plan_layout *layout, const struct plan_buffer_kind *kind,
                         const uint64_t bytes[PLAN_SIZE_COUNT],
                         const uint32_t counts[PLAN_SIZE_COUNT], struct plan_ring *out)
{
    static const char *const sizes[PLAN_SIZE_COUNT] = {".small", "", ".large", ".data"};
    for (int size = 0; size < PLAN_SIZE_COUNT; size++) {
        assert(counts[size] <= PLAN_SLOT_MAX);
        for (uint32_t i = 0; i < counts[size]; i++) {
            char name[32];
            snprintf(name, sizeof name, "%s%s[%u]", kind->name, sizes[size], i);
            int rc = plan_layout_add(layout, name, kind->tier, kind->consumer, bytes[size],
                                     &out->buffers[size][i]);
            if (rc != 0) {
                return rc;
            }
        }
        out->counts[size] = counts[size];
    }
    return 0;
}

int plan_layout_add_of_block(struct plan_layout *layout, const struct plan_input *input,
                             uint32_t block, const struct plan_buffer_kind *kind, uint64_t bytes,
                             uint32_t *out)
{
    char name[32];
    if (bytes == 0) {
        return 0;
    }
    snprintf(name, sizeof name, "%s(%.20s)", kind->name, input->blocks[block].name);
    int rc = plan_layout_add(layout, name, kind->tier, kind->consumer, bytes, out);
    if (rc == 0 && kind->twice) {
        uint32_t twin = PLAN_NONE;
        snprintf(name, sizeof name, "%s'(%.20s)", kind->name, input->blocks[block].name);
        rc = plan_layout_add(layout, name, kind->tier, kind->consumer, bytes, &twin);
        layout->buffers[*out].twin = twin;
    }
    return rc;
}

uint64_t plan_extents_bytes(uint64_t chunks, uint64_t chunk_bytes, uint64_t last_bytes)
{
    return chunks == 0 ? 0
                       : (chunks - 1) * core_round_up(chunk_bytes, PLAN_EXTENT_BYTES) +
                             core_round_up(last_bytes, PLAN_EXTENT_BYTES);
}
