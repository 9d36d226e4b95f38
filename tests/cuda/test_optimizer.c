/* Tests, on the emulated card, that an optimizer on a GPU keeps the order of the application's
 * streams and has the bits of one in host memory. */
#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "kernels/table.h"
#include "tests/dev/fake_cuda.h"
#include "tests/kernels/rig.h"
#include "tests/run/optimizer_case.h"

/* Work of a stream: filling bytes. */
struct fill {
    void *to;
    const void *from; /* NULL: fill with 0xff, which is NaN */
    size_t bytes;
};

static int run_fill(void *context, const void *arguments)
{
    const struct fill *fill = arguments;
    (void)context;
    if (fill->from != NULL) {
        memcpy(fill->to, fill->from, fill->bytes);
    } else {
        memset(fill->to, 0xff, fill->bytes);
    }
    return 0;
}

static void put_fill(cudaStream_t stream, void *to, const void *from, size_t bytes)
{
    const struct fill fill = {to, from, bytes};
    check_int(fake_stream_run(stream, run_fill, &fill, sizeof fill), ==, 0);
}

static cudaStream_t make_stream(void)
{
    cudaStream_t stream = NULL;
    check_int((int)cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), ==, 0);
    return stream;
}

/* Overwrites arrays on the stream right after their last use; the next wait restores the weights.
 * `seen`: the weights that forward reads. */
static void train_on_card(struct run_optimizer *optimizer, const struct arrays *arrays,
                          struct arrays *seen, struct arrays *made, cudaStream_t streams[2])
{
    uint64_t token = 0;
    for (unsigned s = 0; s < STEPS; s++) {
        for (unsigned i = 0; i < PARAMETERS; i++) {
            const unsigned p = nth(&ways[3], s, i);
            const size_t weights = forms[p].elements * bytes_of(forms[p].weights);
            const size_t gradients = forms[p].elements * bytes_of(forms[p].gradients);
            cudaStream_t stream = streams[p % 2];
            run_optimizer_set_stream(optimizer, stream);
            check_int(run_optimizer_wait_weights(optimizer, p), ==, 0);
            put_fill(stream, seen->weights[p], arrays->weights[p], weights);
            check_int((int)cudaStreamSynchronize(stream), ==, 0);
            make_gradient(seen, p, s, 1);
            memcpy(made->gradients[p], seen->gradients[p], gradients);
            put_fill(stream, arrays->gradients[p], made->gradients[p], gradients);
            check_int(run_optimizer_submit(optimizer, p, arrays->gradients[p], true, &token), ==,
                      0);
            put_fill(stream, arrays->gradients[p], NULL, gradients);
            put_fill(stream, arrays->weights[p], NULL, weights);
        }
        check_int(run_optimizer_step(optimizer, &token), ==, 0);
    }
    for (unsigned p = 0; p < PARAMETERS; p++) {
        run_optimizer_set_stream(optimizer, streams[p % 2]);
        check_int(run_optimizer_wait_weights(optimizer, p), ==, 0);
    }
    check_int((int)cudaStreamSynchronize(streams[0]), ==, 0);
    check_int((int)cudaStreamSynchronize(streams[1]), ==, 0);
}

static void streams_keep_their_order(void)
{
    for (int clips = 0; clips < 2; clips++) {
        const struct rules rules = {CORE_UPDATE_ADAMW, CORE_UPDATE_F32, clips, 1, false, false, 0};
        struct arrays host;
        struct arrays card;
        struct arrays seen;
        struct arrays made;
        uint64_t token = 0;
        kern_ops_detach(NULL); /* makes the linker take the ops of the first library */
        struct way way = ways[1];
        make_arrays(&host);
        struct run_optimizer *optimizer = make_optimizer(&way, &rules, &host);
        for (unsigned s = 0; s < STEPS; s++) {
            submit_all(optimizer, &host, &ways[3], s);
            check_int(run_optimizer_step(optimizer, &token), ==, 0);
        }
        check_int(run_optimizer_wait(optimizer, token), ==, 0);
        run_optimizer_destroy(optimizer);
        (void)rig_machine();
        way.device = "cuda:0";
        make_arrays(&card);
        make_arrays(&seen);
        make_arrays(&made);
        optimizer = make_optimizer(&way, &rules, &card);
        cudaStream_t streams[2] = {make_stream(), make_stream()};
        train_on_card(optimizer, &card, &seen, &made, streams);
        compare(&way, &host, &card);
        run_optimizer_destroy(optimizer);
        check_int((int)cudaStreamDestroy(streams[0]), ==, 0);
        check_int((int)cudaStreamDestroy(streams[1]), ==, 0);
        check_int(fake_live(), ==, 0);
        free_arrays(&host);
        free_arrays(&card);
        free_arrays(&seen);
        free_arrays(&made);
    }
}

/* An error of the card is returned by a submit, the step or the wait. */
static void a_card_fails(void)
{
    struct arrays card;
    uint64_t token = 0;
    int rc = 0;
    kern_ops_detach(NULL);
    (void)rig_machine();
    struct way way = ways[0];
    way.device = "cuda:0";
    make_arrays(&card);
    struct run_optimizer *optimizer = make_optimizer(&way, &plain, &card);
    cudaStream_t stream = make_stream();
    run_optimizer_set_stream(optimizer, stream);
    fake_break((int)cudaErrorIllegalAddress);
    for (unsigned p = 0; rc == 0 && p < PARAMETERS; p++) {
        make_gradient(&card, p, 0, 1);
        rc = run_optimizer_submit(optimizer, p, card.gradients[p], true, &token);
    }
    rc = rc == 0 ? run_optimizer_step(optimizer, &token) : rc;
    rc = rc == 0 ? run_optimizer_wait(optimizer, token) : rc;
    check_int(rc, ==, -EIO);
    check_contains(core_err_message(), "cuda:0");
    run_optimizer_destroy(optimizer);
    (void)cudaStreamDestroy(stream);
    free_arrays(&card);
}

TEST_MAIN({"streams_keep_their_order", streams_keep_their_order}, {"a_card_fails", a_card_fails})
