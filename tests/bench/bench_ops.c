/* bench_ops.c: how fast the CPU device's ops are, on the shapes of one layer and the head of a 158M
 * Llama (hidden 1024, inner 2816, 16 heads of 64, 8 key heads, vocabulary 8192), 2 rows of 512.
 * Prints `name value unit` lines of the best run; `_ratio` is ours over oneDNN's, in turns.
 * `--quick` runs less; `--threads N` sets the size of the team; `--only WORD` selects ops. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/team.h"
#include "core/dev/launch.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/table.h"

enum { TOKENS = 1024, HIDDEN = 1024, INNER = 2816, QKV = 2048, VOCAB = 8192, HEADS = 16 };

static struct {
    int tries;
    const char *only; /* part of an op's name; NULL: all */
    struct core_team *team;
    struct kern_cpu *ours, *foreign;
    char *memory; /* operands, operand_bytes apart */
    void *scratch;
} bench = {.tries = 15};

static const size_t operand_bytes = (size_t)48 << 20;
static const size_t scratch_bytes = (size_t)192 << 20;

static void must(int rc)
{
    if (rc < 0) {
        fprintf(stderr, "bench_ops: %s\n", core_err_message());
        exit(1);
    }
}

static void *operand(unsigned index)
{
    return bench.memory + index * operand_bytes;
}

static bool wanted(enum kern_op op)
{
    return bench.only == NULL || strstr(kern_op_name(op), bench.only) != NULL;
}

static double run(struct kern_cpu *cpu, enum kern_op op, const void *arguments)
{
    const struct dev_launch where = {.team = bench.team,
                                     .scratch = bench.scratch,
                                     .scratch_bytes = scratch_bytes,
                                     .context = cpu};
    size_t count = 0;
    const struct dev_op *rows = kern_cpu_rows(&count);
    for (size_t i = 0; i < count; i++) {
        if (rows[i].op == op) {
            const int64_t start = core_clock_now_ns();
            must(rows[i].launch(&where, arguments));
            return (double)(core_clock_now_ns() - start) * 1e-9;
        }
    }
    return 0.0;
}

/* Returns the best seconds of ours; measures oneDNN's in turns, if this build has it. */
static double best(enum kern_op op, const void *arguments, double *foreign)
{
    double ours = 1e9;
    *foreign = 1e9;
    /* Operands of about 0.01 in fp32 and bf16. The previous op's results, read as another type,
     * could be subnormal, which is slow. */
    memset(bench.memory, 0x3c, 8 * operand_bytes);
    for (int i = 0; i <= bench.tries; i++) {
        const double mine = run(bench.ours, op, arguments);
        const double its = bench.foreign != NULL ? run(bench.foreign, op, arguments) : 1e9;
        if (i > 0) { /* the first run warms up */
            ours = mine < ours ? mine : ours;
            *foreign = its < *foreign ? its : *foreign;
        }
    }
    return ours;
}

static void product(const char *name, enum kern_type type, enum kern_op op, const int64_t nk[2])
{
    const int64_t n = nk[0];
    const int64_t k = nk[1];
    if (!wanted(op)) {
        return;
    }
    const struct kern_linear_arguments y = {.type = type,
                                            .m = TOKENS,
                                            .n = n,
                                            .k = k,
                                            .x = operand(0),
                                            .x_stride = k,
                                            .w = operand(1),
                                            .y = operand(2),
                                            .y_stride = n};
    const struct kern_linear_grad_input_arguments dx = {.type = type,
                                                        .m = TOKENS,
                                                        .n = n,
                                                        .k = k,
                                                        .dy = operand(2),
                                                        .dy_stride = n,
                                                        .w = operand(1),
                                                        .dx = operand(3),
                                                        .dx_stride = k,
                                                        .first = true,
                                                        .last = true};
    const struct kern_linear_grad_weight_arguments dw = {
        .type = type,
        .m = TOKENS,
        .n = n,
        .k = k,
        .dy = operand(2),
        .dy_stride = n,
        .x = operand(0),
        .x_stride = k,
        .dw = {.out = operand(3), .out_type = type, .first = true, .last = true}};
    const void *arguments = op == KERN_LINEAR              ? (const void *)&y
                            : op == KERN_LINEAR_GRAD_INPUT ? (const void *)&dx
                                                           : (const void *)&dw;
    double foreign = 0.0;
    const double seconds = best(op, arguments, &foreign);
    const double work = 2.0 * TOKENS * (double)n * (double)k * 1e-9;
    char title[128];
    snprintf(title, sizeof title, "%s_%s_%s", kern_op_name(op), name, kern_type_name(type));
    printf("%s %.1f GFLOP/s\n", title, work / seconds);
    if (bench.foreign != NULL) {
        printf("%s_onednn %.1f GFLOP/s\n%s_ratio %.2f x\n", title, work / foreign, title,
               foreign / seconds);
    }
}

static void products(enum kern_type type)
{
    const struct {
        const char *name;
        int64_t nk[2];
    } shapes[] = {{"qkv", {QKV, HIDDEN}},
                  {"o", {HIDDEN, HIDDEN}},
                  {"gate_up", {2 * INNER, HIDDEN}},
                  {"down", {HIDDEN, INNER}}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        product(shapes[i].name, type, KERN_LINEAR, shapes[i].nk);
        product(shapes[i].name, type, KERN_LINEAR_GRAD_INPUT, shapes[i].nk);
        product(shapes[i].name, type, KERN_LINEAR_GRAD_WEIGHT, shapes[i].nk);
    }
}

static void other(enum kern_type type, enum kern_op op, const void *arguments)
{
    if (!wanted(op)) {
        return;
    }
    struct kern_cpu *foreign = bench.foreign;
    double unused = 0.0;
    bench.foreign = NULL;
    printf("%s_%s %.3f ms\n", kern_op_name(op), kern_type_name(type),
           best(op, arguments, &unused) * 1e3);
    bench.foreign = foreign;
}

static void others(enum kern_type type)
{
    const size_t bytes = kern_type_bytes(type);
    float *statistics = operand(7);
    const struct kern_norm_arguments norm = {.type = type,
                                             .tokens = TOKENS,
                                             .heads = 1,
                                             .width = HIDDEN,
                                             .eps = 1e-5f,
                                             .x = operand(0),
                                             .x_stride = HIDDEN,
                                             .add = operand(1),
                                             .sum = operand(2),
                                             .weight = operand(3),
                                             .y = operand(4),
                                             .y_stride = HIDDEN,
                                             .rstd = statistics};
    other(type, KERN_NORM, &norm);
    const struct kern_norm_grad_arguments norm_grad = {
        .type = type,
        .tokens = TOKENS,
        .heads = 1,
        .width = HIDDEN,
        .dy = operand(0),
        .dy_stride = HIDDEN,
        .s = operand(2),
        .s_stride = HIDDEN,
        .weight = operand(3),
        .rstd = statistics,
        .add = operand(1),
        .dx = operand(4),
        .dx_stride = HIDDEN,
        .dweight = {.out = operand(5), .out_type = type, .first = true, .last = true}};
    other(type, KERN_NORM_GRAD, &norm_grad);
    const struct kern_rope_arguments rope = {.type = type,
                                             .tokens = TOKENS,
                                             .heads = 24,
                                             .head_dim = 64,
                                             .rotary = 64,
                                             .x = operand(0),
                                             .stride = QKV,
                                             .cos = operand(5),
                                             .sin = operand(5),
                                             .length = 512};
    other(type, KERN_ROPE, &rope);
    char *qkv = operand(0);
    char *d_qkv = operand(1);
    const struct kern_attention_arguments attention = {.type = type,
                                                       .rows = 2,
                                                       .length = 512,
                                                       .heads = HEADS,
                                                       .kv_heads = 8,
                                                       .head_dim = 64,
                                                       .scale = 0.125f,
                                                       .q = qkv,
                                                       .q_stride = QKV,
                                                       .k = qkv + 1024 * bytes,
                                                       .k_stride = QKV,
                                                       .v = qkv + 1536 * bytes,
                                                       .v_stride = QKV,
                                                       .o = operand(2),
                                                       .o_stride = HIDDEN,
                                                       .lse = statistics};
    other(type, KERN_ATTENTION, &attention);
    const struct kern_attention_grad_arguments attention_grad = {.forward = attention,
                                                                 .d_o = operand(3),
                                                                 .d_o_stride = HIDDEN,
                                                                 .dq = d_qkv,
                                                                 .dq_stride = QKV,
                                                                 .dk = d_qkv + 1024 * bytes,
                                                                 .dk_stride = QKV,
                                                                 .dv = d_qkv + 1536 * bytes,
                                                                 .dv_stride = QKV};
    other(type, KERN_ATTENTION_GRAD, &attention_grad);
    char *gates = operand(0);
    char *d_gates = operand(1);
    const struct kern_act_arguments act = {.type = type,
                                           .tokens = TOKENS,
                                           .width = INNER,
                                           .gate = gates,
                                           .gate_stride = 2 * INNER,
                                           .up = gates + INNER * bytes,
                                           .up_stride = 2 * INNER,
                                           .y = operand(2),
                                           .y_stride = INNER};
    other(type, KERN_ACT, &act);
    const struct kern_act_grad_arguments act_grad = {.type = type,
                                                     .tokens = TOKENS,
                                                     .width = INNER,
                                                     .gate = gates,
                                                     .gate_stride = 2 * INNER,
                                                     .up = act.up,
                                                     .up_stride = 2 * INNER,
                                                     .dy = operand(2),
                                                     .dy_stride = INNER,
                                                     .dgate = d_gates,
                                                     .dgate_stride = 2 * INNER,
                                                     .dup = d_gates + INNER * bytes,
                                                     .dup_stride = 2 * INNER,
                                                     .y = operand(3),
                                                     .y_stride = INNER};
    other(type, KERN_ACT_GRAD, &act_grad);
}

static void heads(enum kern_type type)
{
    static int32_t labels[TOKENS];
    static float scale = 1.0f / TOKENS;
    static struct kern_loss loss;
    for (int t = 0; t < TOKENS; t++) {
        labels[t] = t * 7 % VOCAB;
    }
    const struct kern_loss_arguments arguments = {
        .type = type,
        .tokens = TOKENS,
        .vocab = VOCAB,
        .width = HIDDEN,
        .x = operand(0),
        .x_stride = HIDDEN,
        .w = operand(1),
        .labels = labels,
        .scale = &scale,
        .loss = &loss,
        .dx = operand(2),
        .dx_stride = HIDDEN,
        .dw = {.out = operand(3), .out_type = type, .first = true, .last = true}};
    other(type, KERN_LOSS, &arguments);
    const struct kern_embed_arguments embed = {.type = type,
                                               .tokens = TOKENS,
                                               .width = HIDDEN,
                                               .vocab = VOCAB,
                                               .ids = labels,
                                               .table = operand(1),
                                               .length = 512,
                                               .y = operand(2)};
    other(type, KERN_EMBED, &embed);
    const struct kern_embed_grad_arguments embed_grad = {
        .type = type,
        .tokens = TOKENS,
        .width = HIDDEN,
        .vocab = VOCAB,
        .ids = labels,
        .length = 512,
        .dy = operand(2),
        .dtable = {.out = operand(3), .out_type = type, .first = true, .last = true}};
    other(type, KERN_EMBED_GRAD, &embed_grad);
}

int main(int argc, char **argv)
{
    unsigned threads = 0;
    setenv("OMP_WAIT_POLICY", "passive", 0); /* as the tide command does */
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            bench.tries = 3;
        } else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
            bench.only = argv[++i];
        } else if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc) {
            threads = (unsigned)strtoul(argv[++i], NULL, 10);
        } else {
            fprintf(stderr,
                    "usage: bench_ops [--quick] [--threads N] [--only PART-OF-AN-OP'S-NAME]\n");
            return 2;
        }
    }
    must(core_team_create(&(struct core_team_options){.name = "bench", .count = threads},
                          &bench.team));
    must(kern_cpu_create(&(struct kern_options){.products = KERN_PRODUCTS_PLAIN}, &bench.ours));
    if (kern_cpu_create(&(struct kern_options){.products = KERN_PRODUCTS_ONEDNN}, &bench.foreign) !=
        0) {
        fprintf(stderr, "bench_ops: %s; ours alone\n", core_err_message());
    }
    bench.memory = aligned_alloc(4096, 8 * operand_bytes);
    bench.scratch = aligned_alloc(4096, scratch_bytes);
    if (bench.memory == NULL || bench.scratch == NULL) {
        fprintf(stderr, "bench_ops: no memory\n");
        return 1;
    }
    memset(bench.scratch, 0, scratch_bytes);
    for (int type = KERN_F32; type <= KERN_BF16; type++) {
        products((enum kern_type)type);
        others((enum kern_type)type);
        heads((enum kern_type)type);
    }
    free(bench.memory);
    free(bench.scratch);
    kern_cpu_destroy(bench.ours);
    kern_cpu_destroy(bench.foreign);
    core_team_destroy(bench.team);
    return 0;
}
