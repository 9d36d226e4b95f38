/* linear.c: the three products of a linear layer, and the gradient of its bias. */
#include "kernels/cpu/cpu.h"

#include "core/base/team.h"

size_t kern_cpu_linear_bytes(const struct kern_linear_arguments *a, unsigned threads)
{
    return kern_cpu_product_bytes(a->type, a->m, a->n, a->k, threads);
}

int kern_cpu_linear(const struct dev_launch *where, const struct kern_linear_arguments *a)
{
    int rc = kern_cpu_need(where, KERN_LINEAR,
                           kern_cpu_linear_bytes(a, core_team_count(where->team)));
    if (rc != 0) {
        return rc;
    }
    const struct kern_product product = {
        .type = a->type,
        .m = a->m,
        .n = a->n,
        .k = a->k,
        .a = a->x,
        .a_stride = a->x_stride,
        .b = a->w,
        .b_stride = a->k,
        .b_turned = true,
        .finish = {.bias_type = a->type,
                   .bias = a->bias,
                   .scale = a->scale,
                   .first = true,
                   .onto = a->onto,
                   .out = a->y,
                   .out_type = a->type,
                   .out_stride = a->y_stride},
    };
    return kern_cpu_product(where, &product, where->scratch);
}

size_t kern_cpu_linear_grad_input_bytes(const struct kern_linear_grad_input_arguments *a,
                                        unsigned threads)
{
    return kern_cpu_product_bytes(a->type, a->m, a->k, a->n, threads);
}

int kern_cpu_linear_grad_input(const struct dev_launch *where,
                               const struct kern_linear_grad_input_arguments *a)
{
    int rc = kern_cpu_need(where, KERN_LINEAR_GRAD_INPUT,
                           kern_cpu_linear_grad_input_bytes(a, core_team_count(where->team)));
    if (rc != 0) {
        return rc;
    }
    const struct kern_product product = {
        .type = a->type,
        .m = a->m,
        .n = a->k,
        .k = a->n,
        .a = a->dy,
        .a_stride = a->dy_stride,
        .b = a->w,
        .b_stride = a->k,
        .finish = {.scale = a->scale,
                   .sum = a->sum,
                   .sum_stride = a->k,
                   .first = a->first,
                   .out = a->last ? a->dx : NULL,
                   .out_type = a->type,
                   .out_stride = a->dx_stride},
    };
    return kern_cpu_product(where, &product, where->scratch);
}

size_t kern_cpu_linear_grad_weight_bytes(const struct kern_linear_grad_weight_arguments *a,
                                         unsigned threads)
{
    return kern_cpu_product_bytes(a->type, a->n, a->k, a->m, threads);
}

int kern_cpu_linear_grad_weight(const struct dev_launch *where,
                                const struct kern_linear_grad_weight_arguments *a)
{
    int rc = kern_cpu_need(where, KERN_LINEAR_GRAD_WEIGHT,
                           kern_cpu_linear_grad_weight_bytes(a, core_team_count(where->team)));
    if (rc != 0 || !kern_grad_wanted(&a->dw)) {
        return rc;
    }
    const struct kern_product product = {
        .type = a->type,
        .m = a->n,
        .n = a->k,
        .k = a->m,
        .a = a->dy,
        .a_stride = a->dy_stride,
        .a_turned = true,
        .b = a->x,
        .b_stride = a->x_stride,
        .finish = kern_finish_grad(&a->dw, a->k),
    };
    return kern_cpu_product(where, &product, where->scratch);
}

struct bias_job {
    const struct kern_bias_grad_arguments *a;
    const struct kern_isa *isa;
    float *parts;
};

static void bias_parts(const void *argument, int64_t begin, int64_t end)
{
    const struct bias_job *job = argument;
    const struct kern_rows rows = {
        .type = job->a->type,
        .data = job->a->dy,
        .stride = job->a->dy_stride,
        .width = job->a->n,
    };
    for (int64_t part = begin; part < end; part++) {
        int64_t first = 0;
        int64_t last = 0;
        kern_cpu_part_rows(job->a->m, part, &first, &last);
        job->isa->rows_sum(&rows, first, last, job->parts + part * job->a->n);
    }
}

size_t kern_cpu_bias_grad_bytes(const struct kern_bias_grad_arguments *a, unsigned threads)
{
    (void)threads;
    return KERN_CPU_PARTS * (size_t)a->n * sizeof(float);
}

int kern_cpu_bias_grad(const struct dev_launch *where, const struct kern_bias_grad_arguments *a)
{
    int rc = kern_cpu_need(where, KERN_BIAS_GRAD, kern_cpu_bias_grad_bytes(a, 1));
    if (rc != 0 || !kern_grad_wanted(&a->db)) {
        return rc;
    }
    const struct bias_job job = {a, kern_cpu_isa(where), where->scratch};
    kern_cpu_spread(where, KERN_CPU_PARTS, 1, bias_parts, &job);
    kern_cpu_parts_finish(job.isa, job.parts, a->n, &a->db);
    return 0;
}
