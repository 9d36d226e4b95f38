/* norm.c: shares the rows of a norm among the team. */
#include "kernels/cpu/cpu.h"

enum { ROW_GRAIN = 4 };

struct norm_job {
    const struct kern_isa *isa;
    const struct kern_norm_arguments *a;
};

static void norm_range(const void *argument, int64_t begin, int64_t end)
{
    const struct norm_job *job = argument;
    job->isa->norm(job->a, begin, end);
}

size_t kern_cpu_norm_bytes(const struct kern_norm_arguments *a, unsigned threads)
{
    (void)a;
    (void)threads;
    return 0;
}

int kern_cpu_norm(const struct dev_launch *where, const struct kern_norm_arguments *a)
{
    const struct norm_job job = {kern_cpu_isa(where), a};
    kern_cpu_spread(where, a->tokens * a->heads, ROW_GRAIN, norm_range, &job);
    return 0;
}

struct grad_job {
    const struct kern_isa *isa;
    const struct kern_norm_grad_arguments *a;
    float *dweight; /* [KERN_CPU_PARTS][width], or NULL */
    float *dbias;
};

static void grad_parts(const void *argument, int64_t begin, int64_t end)
{
    const struct grad_job *job = argument;
    const int64_t width = job->a->width;
    for (int64_t part = begin; part < end; part++) {
        int64_t first = 0;
        int64_t last = 0;
        kern_cpu_part_rows(job->a->tokens * job->a->heads, part, &first, &last);
        job->isa->norm_grad(job->a, first, last,
                            job->dweight != NULL ? job->dweight + part * width : NULL,
                            job->dbias != NULL ? job->dbias + part * width : NULL);
    }
}

size_t kern_cpu_norm_grad_bytes(const struct kern_norm_grad_arguments *a, unsigned threads)
{
    (void)threads;
    return 2 * kern_cpu_round(KERN_CPU_PARTS * (size_t)a->width * sizeof(float));
}

int kern_cpu_norm_grad(const struct dev_launch *where, const struct kern_norm_grad_arguments *a)
{
    int rc = kern_cpu_need(where, KERN_NORM_GRAD, kern_cpu_norm_grad_bytes(a, 1));
    if (rc != 0) {
        return rc;
    }
    char *scratch = where->scratch;
    const size_t bytes = KERN_CPU_PARTS * (size_t)a->width * sizeof(float);
    float *dweight = kern_cpu_take(&scratch, bytes);
    float *dbias = kern_cpu_take(&scratch, bytes);
    const struct grad_job job = {
        .isa = kern_cpu_isa(where),
        .a = a,
        .dweight = kern_grad_wanted(&a->dweight) ? dweight : NULL,
        .dbias = kern_grad_wanted(&a->dbias) ? dbias : NULL,
    };
    kern_cpu_spread(where, KERN_CPU_PARTS, 1, grad_parts, &job);
    if (job.dweight != NULL) {
        kern_cpu_parts_finish(job.isa, dweight, a->width, &a->dweight);
    }
    if (job.dbias != NULL) {
        kern_cpu_parts_finish(job.isa, dbias, a->width, &a->dbias);
    }
    return 0;
}
