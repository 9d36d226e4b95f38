/* test_run.c: a device queue that holds fewer commands than a list has steps. */
#include <stddef.h>
#include <string.h>

#include "core/dev/dev.h"
#include "kernels/table.h"
#include "offload/model/run.h"
#include "tests/harness/test.h"

enum { STEPS = 40, COUNT = 16, DEPTH = 2 };

struct rig {
    struct dev_device *device;
    struct kern_ops *ops;
    struct dev_queue *queue;
};

static void rig_open(struct rig *rig)
{
    const struct kern_options kernels = {0};
    const struct dev_options memory = {.memory_bytes = 1 << 20};
    const struct dev_queue_options queue = {
        .kind = DEV_QUEUE_COMPUTE, .depth = DEPTH, .threads = 1, .scratch_bytes = 1 << 16};
    check_int(dev_open("cpu", &memory, &rig->device), ==, 0);
    check_int(kern_ops_attach(rig->device, &kernels, &rig->ops), ==, 0);
    check_int(dev_queue_create(rig->device, &queue, &rig->queue), ==, 0);
}

static void rig_close(struct rig *rig)
{
    dev_queue_destroy(rig->queue);
    kern_ops_detach(rig->ops);
    dev_close(rig->device);
}

/* Every third step is also recomputed. */
static struct model_step addition(int index)
{
    struct model_step step = {.op = KERN_ADD, .recompute = index % 3 == 0, .patch_count = 3};
    const struct kern_add_arguments arguments = {
        .count = COUNT, .a_type = KERN_F32, .b_type = KERN_F32, .y_type = KERN_F32};
    const struct model_patch patches[] = {
        {.field = offsetof(struct kern_add_arguments, a), .base = MODEL_BASE_OUT},
        {.field = offsetof(struct kern_add_arguments, b), .base = MODEL_BASE_IN},
        {.field = offsetof(struct kern_add_arguments, y), .base = MODEL_BASE_OUT}};
    memcpy(step.arguments, &arguments, sizeof arguments);
    memcpy(step.patches, patches, sizeof patches);
    return step;
}

/* The steps run once each, although the queue is often full. */
static void more_steps_than_room(void)
{
    struct rig rig = {0};
    struct model_step list[STEPS];
    const struct model_steps steps = {.list = list, .count = STEPS};
    void *memory = NULL;
    int recomputed = 0;
    for (int i = 0; i < STEPS; i++) {
        list[i] = addition(i);
        recomputed += list[i].recompute;
    }
    rig_open(&rig);
    check_int(dev_memory_alloc(rig.device, 2 * COUNT * sizeof(float), &memory), ==, 0);
    float *in = memory;
    float *out = in + COUNT;
    const struct model_binding binding = {.base = {[MODEL_BASE_IN] = in, [MODEL_BASE_OUT] = out}};
    for (int i = 0; i < COUNT; i++) {
        in[i] = (float)(i + 1);
        out[i] = 0;
    }
    check_int(model_run_all(rig.queue, &steps, MODEL_RUN_ALL, &binding), ==, 0);
    check_int(core_fence_wait(dev_queue_tail(rig.queue), -1), ==, 0);
    for (int i = 0; i < COUNT; i++) {
        check_double((double)out[i], ==, (double)STEPS * (i + 1));
    }
    check_int(model_run_all(rig.queue, &steps, MODEL_RUN_RECOMPUTE, &binding), ==, 0);
    check_int(core_fence_wait(dev_queue_tail(rig.queue), -1), ==, 0);
    check_double((double)out[0], ==, (double)(STEPS + recomputed));
    dev_memory_free(rig.device, memory);
    rig_close(&rig);
}

TEST_MAIN({"more_steps_than_room", more_steps_than_room})
