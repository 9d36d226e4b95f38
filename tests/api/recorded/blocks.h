/* blocks.h: what programs were compiled with when the ABI of 0.1 was recorded. Never edited: test_growth.c. */
#ifndef TIDE_BLOCKS_H
#define TIDE_BLOCKS_H
#include <stddef.h>
#include <stdint.h>
#include <tide/engine.h>
#ifdef __cplusplus
extern "C" {
#endif
struct tide_blocks;
struct tide_memory {
    size_t struct_bytes;
    void *memory;
    uint64_t bytes;
};
struct tide_blocks_options {
    size_t struct_bytes;
    uint64_t host_bytes;
    const struct tide_store_path *stores;
    size_t store_count;
    const char *io;
    uint32_t depth;
    uint32_t no_checksums;
    const struct tide_memory *memory;
    size_t memory_count;
};
TIDE_API int tide_blocks_create(struct tide_context *context,
                                const struct tide_blocks_options *options,
                                struct tide_blocks **out);
TIDE_API void tide_blocks_destroy(struct tide_blocks *blocks);
struct tide_block {
    size_t struct_bytes;
    void *data;
    uint64_t bytes;
};
TIDE_API int tide_blocks_put(struct tide_blocks *blocks, const char *name, const void *data,
                             uint64_t bytes);
TIDE_API int tide_blocks_get(struct tide_blocks *blocks, const char *name, void *buffer,
                             uint64_t bytes, struct tide_block *out);
TIDE_API int tide_blocks_release(struct tide_blocks *blocks, const char *name, int changed);
TIDE_API int tide_blocks_prefetch(struct tide_blocks *blocks, const char *name);
TIDE_API int tide_blocks_drop(struct tide_blocks *blocks, const char *name);
struct tide_block_io {
    size_t struct_bytes;
    uint32_t background;
    uint32_t through;
};
enum { TIDE_BLOCKS_TOKENS = 1024 };
TIDE_API int tide_blocks_put_begin(struct tide_blocks *blocks, const char *name, const void *data,
                                   uint64_t bytes, const struct tide_block_io *io, uint64_t *token);
TIDE_API int tide_blocks_get_begin(struct tide_blocks *blocks, const char *name, void *buffer,
                                   uint64_t bytes, const struct tide_block_io *io, uint64_t *token);
TIDE_API int tide_blocks_poll(struct tide_blocks *blocks, uint64_t token, struct tide_block *out);
TIDE_API int tide_blocks_wait(struct tide_blocks *blocks, uint64_t token, struct tide_block *out);
TIDE_API int tide_blocks_iteration(struct tide_blocks *blocks);
struct tide_block_info {
    size_t struct_bytes;
    uint64_t bytes;
    uint32_t in_memory;
    uint32_t in_store;
    uint64_t pins;
};
TIDE_API int tide_blocks_describe(struct tide_blocks *blocks, const char *name,
                                  struct tide_block_info *out);
struct tide_blocks_stats {
    size_t struct_bytes;
    uint64_t host_bytes;
    uint64_t host_used_bytes;
    uint64_t host_peak_bytes;
    uint64_t store_bytes;
    uint64_t store_used_bytes;
    uint64_t gets;
    uint64_t hits;
    uint64_t read_bytes;
    uint64_t written_bytes;
    uint64_t evictions;
    uint64_t prefetches;
    uint64_t order_changes;
};
TIDE_API int tide_blocks_stats(struct tide_blocks *blocks, struct tide_blocks_stats *out);
struct tide_pinned;
TIDE_API int tide_pinned_alloc(struct tide_context *context, const char *device, uint64_t bytes,
                               struct tide_pinned **out);
TIDE_API void *tide_pinned_memory(const struct tide_pinned *pinned);
TIDE_API void tide_pinned_free(struct tide_pinned *pinned);
#ifdef __cplusplus
}
#endif
#endif
