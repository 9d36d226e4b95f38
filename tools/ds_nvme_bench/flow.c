/* flow.c: opens and closes in order. */
#include "tools/ds_nvme_bench/flow.h"

int bench_flow_open(const struct bench_flow_options *options, struct bench_flow *flow)
{
    const struct bench_target *target = options->target;
    const struct core_region_options memory = {
        .name = "slots", .bytes = options->memory_bytes, .pages = options->pages};
    const struct aio_drive_options drive = {.name = target->path,
                                            .backend = target->backend,
                                            .depth = options->depth,
                                            .block_bytes = options->block_bytes};
    const struct aio_file file = {.fd = target->fd,
                                  .name = target->path,
                                  .size_bytes = options->file_bytes != 0 ? options->file_bytes
                                                                         : target->file_bytes,
                                  .direct = target->direct};
    *flow = (struct bench_flow){0};
    int rc = core_region_alloc(&memory, &flow->memory);
    if (rc == 0 && (rc = aio_drive_create(&drive, &flow->drive)) == 0) {
        rc = aio_drive_attach(flow->drive, &file, &flow->file);
    }
    if (rc == 0 && options->registered) {
        const struct iovec slab = {.iov_base = flow->memory.base, .iov_len = flow->memory.bytes};
        rc = aio_drive_register(flow->drive, &slab, 1);
    }
    for (int q = 0; q < BENCH_FLOW_QUEUES && rc == 0; q++) {
        const struct aio_queue_options queue = {.name = options->names[q], .urgency = AIO_STATES};
        rc = options->names[q] != NULL ? aio_queue_open(&flow->drive, 1, &queue, &flow->queues[q])
                                       : 0;
    }
    return rc;
}

int bench_flow_close(struct bench_flow *flow)
{
    int rc = 0;
    for (int q = 0; q < BENCH_FLOW_QUEUES; q++) {
        const int ended = aio_queue_close(flow->queues[q]);
        rc = rc == 0 ? ended : rc;
    }
    const int ended = aio_drive_destroy(flow->drive);
    rc = rc == 0 ? ended : rc;
    if (rc == 0) {
        core_region_free(&flow->memory);
    }
    return rc;
}
