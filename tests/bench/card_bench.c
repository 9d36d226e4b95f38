/* card_bench.c: see card_bench.h. */
#include "tests/bench/card_bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/half.h"
#include "core/base/rng.h"
#include "kernels/table.h"

static const size_t FILL_BYTES = (size_t)32 << 20;

static const struct card_shape llama_8b = {.name = "an 8B Llama",
                                           .tokens = TOKENS_MAX,
                                           .hidden = 4096,
                                           .inner = 14336,
                                           .vocab = 128256,
                                           .heads = 32,
                                           .kv_heads = 8,
                                           .dim = 128,
                                           .qkv = 6144,
                                           .attention_heads = 64,
                                           .divisor = 1,
                                           .updated = (uint64_t)1 << 27,
                                           .array_bytes = (size_t)2 << 30,
                                           .scratch_bytes = (size_t)6 << 30,
                                           .copy_bytes = (size_t)1 << 30};

static const struct card_shape tiny = {.name = "a tiny model: the figures mean nothing",
                                       .tokens = 64,
                                       .hidden = 128,
                                       .inner = 192,
                                       .vocab = 320,
                                       .heads = 1,
                                       .kv_heads = 1,
                                       .dim = 128,
                                       .qkv = 384,
                                       .attention_heads = 1,
                                       .divisor = 128,
                                       .updated = (uint64_t)1 << 13,
                                       .array_bytes = (size_t)4 << 20,
                                       .scratch_bytes = (size_t)48 << 20,
                                       .copy_bytes = (size_t)1 << 20};

struct card_bench bench;

static void must(int rc)
{
    if (rc < 0) {
        fprintf(stderr, "%s: %s\n", bench.name, core_err_message());
        exit(1);
    }
}

static void launch(const struct card_bench_step *steps, int length, int count)
{
    struct core_fence fence = {0};
    for (int i = 0; i < count * length;) {
        const struct card_bench_step *step = &steps[i % length];
        const struct dev_command command = {.op = step->op,
                                            .arguments = step->arguments,
                                            .arguments_bytes = kern_op_argument_bytes(step->op)};
        const int rc = dev_queue_launch(bench.queue, &command, &fence);
        if (rc != -EAGAIN) {
            must(rc);
            i++;
        }
    }
    must(core_fence_wait(fence, 60000000000));
}

static double seconds(const struct card_bench_step *steps, int length, int count)
{
    const int64_t start = core_clock_now_ns();
    launch(steps, length, count);
    return (double)(core_clock_now_ns() - start) * 1e-9;
}

/* Returns the least time of a run: the best mean of several batches of about 20 ms or more. */
double card_bench_best(const struct card_bench_step *steps, int length)
{
    launch(steps, length, 2); /* warms up */
    const double one = seconds(steps, length, 1);
    const int count = one > 0.02 ? 1 : (int)(0.02 / one) + 1;
    double least = 1e9;
    for (int i = 0; i < bench.batches; i++) {
        const double batch = seconds(steps, length, count) / count;
        least = batch < least ? batch : least;
    }
    return least;
}

/* Returns whether `name` contains a word of the comma-separated `list`. */
static bool contains_one(const char *name, const char *list)
{
    char word[64];
    while (*list != '\0') {
        const size_t length = strcspn(list, ",");
        snprintf(word, sizeof word, "%.*s", (int)length, list);
        if (strstr(name, word) != NULL) {
            return true;
        }
        list += length + (list[length] == ',');
    }
    return false;
}

bool card_bench_wanted(const char *name)
{
    return bench.only == NULL || contains_one(name, bench.only);
}

static void copy(enum dev_copy_direction direction, void *to, const void *from, size_t bytes)
{
    struct core_fence fence = {0};
    const struct dev_copy move = {.direction = direction, .to = to, .from = from, .bytes = bytes};
    must(dev_queue_copy(bench.queue, &move, &fence));
    must(core_fence_wait(fence, 60000000000));
}

/* Returns a nearly normal number, as the sum of four uniform numbers. */
static float normal(uint64_t position)
{
    const struct core_rng_words random = core_rng_philox(1, 0, position);
    float sum = -2.0f;
    for (int i = 0; i < 4; i++) {
        sum += core_rng_unit(random.word[i]);
    }
    return sum * 0.866f;
}

/* Fills with normal numbers, as torch_ops.py does, because a card's clock depends on the bits. The
 * last array is zeros. */
static void fill(void)
{
    const size_t bytes = bench.shape->array_bytes;
    const size_t piece = bytes < FILL_BYTES ? bytes : FILL_BYTES;
    uint16_t *host = malloc(piece);
    if (host == NULL) {
        exit(1);
    }
    for (size_t i = 0; i < piece / 2; i++) {
        host[i] = core_f32_to_bf16(normal(i));
    }
    for (int array = 0; array < CARD_BENCH_ARRAYS; array++) {
        must(dev_memory_alloc(bench.device, bytes, &bench.arrays[array]));
        if (array == CARD_BENCH_ARRAYS - 1) {
            memset(host, 0, piece);
        }
        copy(DEV_COPY_UP, bench.arrays[array], host, piece);
        for (size_t at = piece; at < bytes; at += piece) {
            copy(DEV_COPY_WITHIN, (char *)bench.arrays[array] + at, bench.arrays[array], piece);
        }
    }
    free(host);
}

void card_bench_fill(int array, const void *values, size_t bytes)
{
    copy(DEV_COPY_UP, bench.arrays[array], values, bytes);
}

void card_bench_zero(int array)
{
    const void *zeros = bench.arrays[CARD_BENCH_ARRAYS - 1];
    copy(DEV_COPY_WITHIN, bench.arrays[array], zeros, bench.shape->array_bytes);
}

static void begin(const struct kern_options *options)
{
    struct dev_rates rates;
    const size_t arrays = CARD_BENCH_ARRAYS * bench.shape->array_bytes;
    const struct dev_options memory = {.memory_bytes = arrays + bench.shape->scratch_bytes +
                                                       2 * bench.shape->copy_bytes};
    must(dev_open("cuda", &memory, &bench.device));
    must(dev_rates_measure(bench.device, bench.shape->copy_bytes, &rates));
    bench.copy = 2.0 * rates.within;
    must(kern_ops_attach(bench.device, options, &bench.ops));
    const struct dev_queue_options queue = {
        .kind = DEV_QUEUE_COMPUTE, .depth = 512, .scratch_bytes = bench.shape->scratch_bytes};
    must(dev_queue_create(bench.device, &queue, &bench.queue));
    printf("# %s; %s; shapes of %s, %lld tokens\n", dev_properties(bench.device)->description,
           kern_ops_describe(bench.ops), bench.shape->name, (long long)bench.tokens);
    printf("copy_within %.1f GB/s\ncopy_up %.1f GB/s\ncopy_down %.1f GB/s\n"
           "copy_up_and_down %.1f GB/s_each\n",
           bench.copy * 1e-9, rates.up * 1e-9, rates.down * 1e-9, rates.both * 1e-9);
    fill();
}

void card_bench_open(int argc, char **argv)
{
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* an interrupted run keeps its lines */
    const struct kern_options options = {.products = KERN_PRODUCTS_BEST};
    bool quick = false;
    bench = (struct card_bench){.shape = &llama_8b, .batches = 5};
    bench.name = strrchr(argv[0], '/') != NULL ? strrchr(argv[0], '/') + 1 : argv[0];
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            quick = true;
        } else if (strcmp(argv[i], "--tiny") == 0) {
            bench.shape = &tiny;
        } else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
            bench.only = argv[++i];
        } else {
            fprintf(stderr, "%s [--quick] [--tiny] [--only WORD[,WORD...]]\n", bench.name);
            exit(2);
        }
    }
    bench.tokens = quick ? bench.shape->tokens / 4 : bench.shape->tokens;
    bench.batches = quick ? 2 : bench.batches;
    begin(&options);
}

void card_bench_close(void)
{
    dev_queue_destroy(bench.queue);
    kern_ops_detach(bench.ops);
    for (int array = 0; array < CARD_BENCH_ARRAYS; array++) {
        dev_memory_free(bench.device, bench.arrays[array]);
    }
    dev_close(bench.device);
}
