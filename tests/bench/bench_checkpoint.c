/* bench_checkpoint.c: how fast the bytes of a checkpoint go to a folder and come back, sums taken and
 * checked. Prints `name value unit` lines.
 *
 *   bench_checkpoint DIR [--quick | --large]
 *
 * 4.4 GB, best of three; 0.8 GB once, or 13.3 GB once, which is what a model of 1.1 billion parameters has.
 *
 * Beside it, on the same folder: fio --name=w --directory=DIR --size=4G --bs=1M --iodepth=16
 * --ioengine=io_uring --direct=1 --rw=write --end_fsync=1, and with --rw=read. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "offload/plan/shard.h"
#include "offload/store/flow.h"

enum { BLOCKS = 8, CHUNK = 4 << 20, PASSES = 3 };

static void die(const char *what)
{
    fprintf(stderr, "bench_checkpoint: %s: %s\n", what, core_err_sentence());
    exit(1);
}

static void check(int rc, const char *what)
{
    if (rc != 0) {
        die(what);
    }
}

static struct store_flow *flow_at(const struct store_image *image, const char *path, bool writes)
{
    struct store_flow *flow = NULL;
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const struct store_flow_options options = {
        .image = image, .folder = fd, .name = path, .writes = writes};
    check(store_flow_open(&options, &flow), path);
    close(fd);
    return flow;
}

static void clear(const char *path)
{
    static const char *const streams[] = {"weights", "master", "m", "v"};
    for (size_t i = 0; i < 4; i++) {
        char name[4200];
        snprintf(name, sizeof name, "%s/%s.safetensors", path, streams[i]);
        (void)unlink(name);
    }
}

/* All blocks, chunk after chunk out of the same slot. */
static double write_all(struct store_flow *flow, uint64_t elements, const struct store_arrays *slot)
{
    const int64_t begin_ns = core_clock_now_ns();
    for (uint32_t b = 0; b < BLOCKS; b++) {
        for (uint64_t at = 0; at < elements; at += CHUNK) {
            check(store_flow_begin(flow, b, at, CHUNK, slot), "write");
        }
    }
    check(store_flow_sync(flow), "sync");
    return (double)(core_clock_now_ns() - begin_ns) * 1e-9;
}

static double read_all(struct store_flow *flow, uint64_t elements, const struct store_arrays *slot)
{
    const int64_t begin_ns = core_clock_now_ns();
    for (uint32_t b = 0; b < BLOCKS; b++) {
        for (uint64_t at = 0; at < elements; at += CHUNK) {
            check(store_flow_begin(flow, b, at, CHUNK, slot), "read");
        }
    }
    check(store_flow_wait(flow, store_flow_tail(flow)), "read");
    return (double)(core_clock_now_ns() - begin_ns) * 1e-9;
}

static void copy_sums(const struct store_image *image, struct store_flow *from,
                      struct store_flow *to)
{
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        if (store_image_has(image, (enum store_stream)s)) {
            memcpy(store_flow_sums(to, (enum store_stream)s),
                   store_flow_sums(from, (enum store_stream)s),
                   store_image_cuts(image, (enum store_stream)s) * sizeof(uint64_t));
        }
    }
}

int main(int argc, char **argv)
{
    const struct plan_format format = {
        .weight_bytes = 2, .master_bytes = 2, .m_bytes = 4, .v_bytes = 4, .grad_bytes = 2};
    const bool quick = argc > 2 && strcmp(argv[2], "--quick") == 0;
    const bool large = argc > 2 && strcmp(argv[2], "--large") == 0;
    const uint64_t elements = (uint64_t)CHUNK * (quick ? 2 : large ? 33 : 11);
    struct store_image_block blocks[BLOCKS];
    struct store_image image;
    double best[2] = {1e30, 1e30};
    if (argc < 2) {
        fprintf(stderr, "bench_checkpoint DIR [--quick | --large]\n");
        return 2;
    }
    for (int b = 0; b < BLOCKS; b++) {
        blocks[b] = (struct store_image_block){.elements = elements, .trained = true};
        snprintf(blocks[b].name, sizeof blocks[b].name, "layer %d", b);
    }
    check(store_image_init(&image, &format, "BF16", blocks, BLOCKS), "image");
    char *slot = aligned_alloc(PLAN_ALIGN_BYTES, (size_t)CHUNK * 12);
    if (slot == NULL) {
        die("no memory");
    }
    for (size_t i = 0; i < (size_t)CHUNK * 12; i++) {
        slot[i] = (char)(i * 2654435761u >> 7);
    }
    const struct store_arrays arrays = {
        .at = {slot, slot + (size_t)CHUNK * 2, slot + (size_t)CHUNK * 4, slot + (size_t)CHUNK * 8}};
    const double bytes = (double)elements * BLOCKS * 12;
    for (int pass = 0; pass < (quick || large ? 1 : PASSES); pass++) {
        clear(argv[1]);
        struct store_flow *out = flow_at(&image, argv[1], true);
        struct store_flow *in = NULL;
        const double written = write_all(out, elements, &arrays);
        in = flow_at(&image, argv[1], false);
        copy_sums(&image, out, in);
        check(store_flow_close(out), "close");
        const double read = read_all(in, elements, &arrays);
        check(store_flow_close(in), "close");
        best[0] = written < best[0] ? written : best[0];
        best[1] = read < best[1] ? read : best[1];
    }
    clear(argv[1]);
    printf("checkpoint_write %.3f GB/s\n", bytes / best[0] / 1e9);
    printf("checkpoint_read %.3f GB/s\n", bytes / best[1] / 1e9);
    store_image_fini(&image);
    free(slot);
    return 0;
}
