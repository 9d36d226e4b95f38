/* product_dnnl.c: the wrapper of oneDNN.
 * A shape's first use tries b as stored and b in oneDNN's layout. The faster way is chosen if both
 * give the same bits, else b as stored. */
#include "kernels/cpu/product_dnnl.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/cpus.h"
#include "core/base/err.h"
#include "core/base/size.h"
#include "core/base/team.h"
#include "kernels/cpu/dnnl_api.h"
#include "kernels/cpu/isa.h"

enum { SHAPES_MAX = 512, WAYS = 2, TRIES = 2, SCRATCH_GRAIN = 64 };

static const int64_t result_bytes_max = (int64_t)64 << 20;

struct shape {
    dnnl_data_type_t type, result;
    int64_t m, n, k;
    int64_t a[2], b[2], c_stride; /* strides of rows and columns */
};

struct way {
    dnnl_primitive_t product; /* owned */
    dnnl_primitive_t reorder; /* owned; NULL: b keeps its layout */
    dnnl_memory_t a, b, c;    /* owned */
    dnnl_memory_t packed;     /* owned; b in oneDNN's layout */
    size_t packed_bytes;
};

struct entry {
    struct shape shape;
    struct way way[WAYS];
    int chosen; /* index of the way; -1: not chosen yet */
};

struct kern_dnnl {
    void *library;
#define MEMBER(name) __typeof__(&(name)) name;
    DNNL_FUNCTIONS(MEMBER)
#undef MEMBER
    void (*threads_set)(int);
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    bool f32, bf16; /* types that oneDNN computes */
    void *own;      /* owned: scratch where queues have none (`all`) */
    size_t own_bytes;
    size_t count;
    struct entry *entries; /* owned; when full, new shapes use our own product */
    char description[64];
};

static int failed(dnnl_status_t status, const char *what)
{
    return core_err_set(status == dnnl_out_of_memory ? -ENOMEM : -EIO,
                        "oneDNN failed to %s (status %d)", what, (int)status);
}

/* Passes the limit of TIDE_ISA by a call: the environment belongs to the application. */
static int limit_library(const struct kern_dnnl *d)
{
    const unsigned flags = core_cpu_flags(CORE_CPU_ALL);
    if (!core_cpu_flags_limited()) {
        return 0;
    }
    const dnnl_cpu_isa_t most = (flags & CORE_CPU_AVX512_BF16) != 0 ? dnnl_cpu_isa_avx512_core_bf16
                                : (flags & CORE_CPU_AVX512_VNNI) != 0
                                    ? dnnl_cpu_isa_avx512_core_vnni
                                : (flags & CORE_CPU_AVX512) != 0 ? dnnl_cpu_isa_avx512_core
                                : (flags & CORE_CPU_AVX2) != 0   ? dnnl_cpu_isa_avx2
                                                                 : dnnl_cpu_isa_sse41;
    /* Fails if the library is already in use; the limit may hold nevertheless. */
    (void)d->dnnl_set_max_cpu_isa(most);
    const unsigned beyond = (unsigned)d->dnnl_get_effective_cpu_isa() & ~(unsigned)most;
    return beyond == 0
               ? 0
               : core_err_set(-ENOTSUP,
                              "oneDNN is in use by this process with more instructions than "
                              "TIDE_ISA allows");
}

static int library_open(struct kern_dnnl *d)
{
    d->library = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (d->library == NULL) {
        return core_err_set(-ENOTSUP, "oneDNN cannot be loaded: %s", dlerror());
    }
    const struct {
        const char *name;
        void *to;
    } found[] = {
#define FIND(name) {#name, &d->name},
        DNNL_FUNCTIONS(FIND)
#undef FIND
            {"omp_set_num_threads", &d->threads_set},
    };
    for (size_t i = 0; i < sizeof found / sizeof found[0]; i++) {
        void *function = dlsym(d->library, found[i].name);
        if (function == NULL) {
            return core_err_set(-ENOTSUP, "libdnnl.so.2 has no %s", found[i].name);
        }
        memcpy(found[i].to, &function, sizeof function);
    }
    return limit_library(d);
}

int kern_dnnl_create(unsigned flags, bool all, struct kern_dnnl **out)
{
    /* Without AMX our own bf16 products are faster; oneDNN's need AVX-512. */
    const bool bf16 = (flags & (all ? CORE_CPU_AVX512 : CORE_CPU_AMX_BF16)) != 0;
    if (!bf16 && !all) {
        *out = NULL;
        return 0;
    }
    struct kern_dnnl *d = calloc(1, sizeof *d);
    struct entry *entries = calloc(SHAPES_MAX, sizeof *entries);
    if (d == NULL || entries == NULL) {
        free(d);
        free(entries);
        return core_err_set(-ENOMEM, "no memory for oneDNN's primitives");
    }
    d->entries = entries;
    d->bf16 = bf16;
    d->f32 = all;
    int rc = library_open(d);
    if (rc == 0) {
        dnnl_status_t status = d->dnnl_engine_create(&d->engine, dnnl_cpu, 0);
        if (status == dnnl_success) {
            status = d->dnnl_stream_create(&d->stream, d->engine, dnnl_stream_default_flags);
        }
        rc = status == dnnl_success ? 0 : failed(status, "start");
    }
    if (rc != 0) {
        kern_dnnl_destroy(d);
        return rc;
    }
    const dnnl_version_t *version = d->dnnl_version();
    snprintf(d->description, sizeof d->description, "oneDNN %d.%d.%d for %s", version->major,
             version->minor, version->patch,
             !all   ? "bf16"
             : bf16 ? "fp32 and bf16"
                    : "fp32");
    *out = d;
    return 0;
}

static void way_fini(const struct kern_dnnl *d, struct way *way)
{
    const dnnl_memory_t memories[] = {way->a, way->b, way->c, way->packed};
    for (size_t i = 0; i < sizeof memories / sizeof memories[0]; i++) {
        if (memories[i] != NULL) {
            d->dnnl_memory_destroy(memories[i]);
        }
    }
    if (way->product != NULL) {
        d->dnnl_primitive_destroy(way->product);
    }
    if (way->reorder != NULL) {
        d->dnnl_primitive_destroy(way->reorder);
    }
    *way = (struct way){0};
}

void kern_dnnl_destroy(struct kern_dnnl *d)
{
    if (d == NULL) {
        return;
    }
    for (size_t i = 0; i < d->count; i++) {
        for (int w = 0; w < WAYS; w++) {
            way_fini(d, &d->entries[i].way[w]);
        }
    }
    if (d->stream != NULL) {
        d->dnnl_stream_destroy(d->stream);
    }
    if (d->engine != NULL) {
        d->dnnl_engine_destroy(d->engine);
    }
    /* The library stays loaded: its OpenMP threads live in it. */
    free(d->own);
    free(d->entries);
    free(d);
}

const char *kern_dnnl_describe(const struct kern_dnnl *d)
{
    return d->description;
}

bool kern_product_dnnl_takes(const struct kern_dnnl *d, const struct kern_product *p)
{
    return p->k > 0 && ((p->type == KERN_BF16 && d->bf16) || (p->type == KERN_F32 && d->f32));
}

static dnnl_status_t describe(const struct kern_dnnl *d, dnnl_memory_desc_t *desc,
                              const dnnl_dims_t dims, dnnl_data_type_t type,
                              const dnnl_dims_t strides)
{
    return d->dnnl_memory_desc_init_by_strides(desc, 2, dims, type, strides);
}

static dnnl_status_t memory(const struct kern_dnnl *d, const dnnl_memory_desc_t *desc,
                            dnnl_memory_t *out)
{
    return d->dnnl_memory_create(out, desc, d->engine, DNNL_MEMORY_NONE);
}

/* Adds a reorder if oneDNN needs b in another layout. */
static dnnl_status_t way_build(const struct kern_dnnl *d, struct way *way,
                               const dnnl_memory_desc_t desc[3], const dnnl_memory_desc_t *b)
{
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_desc_t made = NULL;
    dnnl_status_t status = d->dnnl_matmul_desc_init(&matmul, &desc[0], b, NULL, &desc[2]);
    status = status != dnnl_success
                 ? status
                 : d->dnnl_primitive_desc_create(&made, &matmul, NULL, d->engine, NULL);
    if (status != dnnl_success) {
        return status;
    }
    const dnnl_memory_desc_t *packed = d->dnnl_primitive_desc_query_md(made, dnnl_query_weights_md,
                                                                       0);
    const bool reorders = d->dnnl_memory_desc_equal(packed, &desc[1]) == 0;
    way->packed_bytes = d->dnnl_memory_desc_get_size(packed);
    status = d->dnnl_primitive_create(&way->product, made);
    if (status == dnnl_success && reorders) {
        dnnl_primitive_desc_t reorder = NULL;
        status = d->dnnl_reorder_primitive_desc_create(&reorder, &desc[1], d->engine, packed,
                                                       d->engine, NULL);
        status = status != dnnl_success ? status : d->dnnl_primitive_create(&way->reorder, reorder);
        status = status != dnnl_success ? status : memory(d, packed, &way->packed);
        if (reorder != NULL) {
            d->dnnl_primitive_desc_destroy(reorder);
        }
    }
    d->dnnl_primitive_desc_destroy(made);
    const dnnl_memory_desc_t *own[3] = {&desc[0], &desc[1], &desc[2]};
    dnnl_memory_t *memories[3] = {&way->a, &way->b, &way->c};
    for (int i = 0; i < 3 && status == dnnl_success; i++) {
        status = memory(d, own[i], memories[i]);
    }
    return status;
}

static int entry_build(struct kern_dnnl *d, const struct shape *shape, struct entry **out)
{
    struct entry *entry = &d->entries[d->count];
    *entry = (struct entry){.shape = *shape, .chosen = -1};
    dnnl_memory_desc_t desc[3];
    dnnl_memory_desc_t any;
    const dnnl_dims_t a = {shape->m, shape->k};
    const dnnl_dims_t b = {shape->k, shape->n};
    const dnnl_dims_t c = {shape->m, shape->n};
    const dnnl_dims_t a_strides = {shape->a[0], shape->a[1]};
    const dnnl_dims_t b_strides = {shape->b[0], shape->b[1]};
    const dnnl_dims_t c_strides = {shape->c_stride, 1};
    dnnl_status_t status = describe(d, &desc[0], a, shape->type, a_strides);
    status = status != dnnl_success ? status : describe(d, &desc[1], b, shape->type, b_strides);
    status = status != dnnl_success ? status : describe(d, &desc[2], c, shape->result, c_strides);
    status = status != dnnl_success
                 ? status
                 : d->dnnl_memory_desc_init_by_tag(&any, 2, b, shape->type, dnnl_format_tag_any);
    status = status != dnnl_success ? status : way_build(d, &entry->way[0], desc, &desc[1]);
    if (status != dnnl_success) {
        way_fini(d, &entry->way[0]);
        return failed(status, "make a product");
    }
    if (way_build(d, &entry->way[1], desc, &any) != dnnl_success || entry->way[1].reorder == NULL) {
        way_fini(d, &entry->way[1]);
        entry->chosen = 0;
    }
    d->count++;
    *out = entry;
    return 0;
}

static int entry_find(struct kern_dnnl *d, const struct shape *shape, struct entry **out)
{
    for (size_t i = 0; i < d->count; i++) {
        if (memcmp(&d->entries[i].shape, shape, sizeof *shape) == 0) {
            *out = &d->entries[i];
            return 0;
        }
    }
    return d->count < SHAPES_MAX ? entry_build(d, shape, out) : -ENOSPC;
}

struct operands {
    const void *a, *b;
    void *c;
    void *packed;
    size_t packed_bytes;
};

static int way_run(const struct kern_dnnl *d, const struct way *way, const struct operands *with)
{
    /* oneDNN only reads inputs, through pointers that are not const. */
    const dnnl_memory_t b = way->reorder != NULL ? way->packed : way->b;
    dnnl_status_t status = d->dnnl_memory_set_data_handle(way->a, (void *)(uintptr_t)with->a);
    status |= d->dnnl_memory_set_data_handle(way->b, (void *)(uintptr_t)with->b);
    status |= d->dnnl_memory_set_data_handle(way->c, with->c);
    if (status == dnnl_success && way->reorder != NULL) {
        status = d->dnnl_memory_set_data_handle(way->packed, with->packed);
        const dnnl_exec_arg_t turn[] = {{DNNL_ARG_FROM, way->b}, {DNNL_ARG_TO, way->packed}};
        status |= d->dnnl_primitive_execute(way->reorder, d->stream, 2, turn);
    }
    const dnnl_exec_arg_t all[] = {
        {DNNL_ARG_SRC, way->a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, way->c}};
    if (status == dnnl_success) {
        status = d->dnnl_primitive_execute(way->product, d->stream, 3, all);
        status |= d->dnnl_stream_wait(d->stream);
    }
    return status == dnnl_success ? 0 : failed(status, "compute a product");
}

static int way_time(const struct kern_dnnl *d, const struct way *way, const struct operands *with,
                    int64_t *best_ns)
{
    int rc = 0;
    *best_ns = INT64_MAX;
    for (int i = 0; i < TRIES && rc == 0; i++) {
        const int64_t start = core_clock_now_ns();
        rc = way_run(d, way, with);
        const int64_t took = core_clock_now_ns() - start;
        *best_ns = took < *best_ns ? took : *best_ns;
    }
    return rc;
}

/* Leaves the first way's result in c. Allocates a copy of the result once per shape. */
static int entry_choose(const struct kern_dnnl *d, struct entry *entry, const struct operands *with)
{
    const struct shape *s = &entry->shape;
    const size_t element = s->result == dnnl_f32 ? 4 : 2;
    const size_t row = (size_t)s->n * element;
    const size_t step = (size_t)s->c_stride * element;
    int64_t ns[WAYS];
    char *first = malloc((size_t)s->m * row);
    const bool fits = entry->way[1].packed_bytes <= with->packed_bytes;
    entry->chosen = 0;
    int rc = way_time(d, &entry->way[0], with, &ns[0]);
    if (rc == 0 && first != NULL && fits) {
        bool same = true;
        for (int64_t i = 0; i < s->m; i++) {
            memcpy(first + (size_t)i * row, (char *)with->c + (size_t)i * step, row);
        }
        rc = way_time(d, &entry->way[1], with, &ns[1]);
        for (int64_t i = 0; i < s->m && rc == 0; i++) {
            char *now = (char *)with->c + (size_t)i * step;
            same = same && memcmp(first + (size_t)i * row, now, row) == 0;
            memcpy(now, first + (size_t)i * row, row);
        }
        entry->chosen = same && ns[1] < ns[0] ? 1 : 0;
    }
    free(first);
    return rc;
}

static int run_shape(struct kern_dnnl *d, const struct shape *shape, const struct operands *with)
{
    struct entry *entry = NULL;
    int rc = entry_find(d, shape, &entry);
    if (rc != 0) {
        return rc;
    }
    return entry->chosen < 0 ? entry_choose(d, entry, with)
                             : way_run(d, &entry->way[entry->chosen], with);
}

/* Returns m if the fp32 result fits in result_bytes_max; else the largest multiple of 64 that fits,
 * but at least 64. */
static int64_t run_rows(int64_t m, int64_t n)
{
    const int64_t rows = result_bytes_max / ((int64_t)sizeof(float) * n);
    return rows >= m ? m : (rows > 64 ? rows / 64 * 64 : 64);
}

static size_t result_bytes(int64_t m, int64_t n)
{
    const int64_t rows = run_rows(m, n) < m ? run_rows(m, n) : m;
    return core_round_up((size_t)(rows * n) * sizeof(float), SCRATCH_GRAIN);
}

/* oneDNN pads both sizes of b to multiples of at most 64. */
static size_t packed_bytes(int64_t n, int64_t k, size_t element)
{
    return core_round_up(core_round_up((uint64_t)n, 64) * core_round_up((uint64_t)k, 64) * element +
                             4096,
                         SCRATCH_GRAIN);
}

size_t kern_product_dnnl_bytes(enum kern_type type, int64_t m, int64_t n, int64_t k,
                               unsigned threads)
{
    (void)threads;
    const unsigned own = CORE_CPU_AMX_BF16;
    if (type != KERN_BF16 || m == 0 || n == 0 || (core_cpu_flags(own) == 0)) {
        return 0;
    }
    return result_bytes(m, n) + packed_bytes(n, k, kern_type_bytes(type));
}

/* Returns where oneDNN can write the result itself (fp32, or a bf16 activation), or NULL. */
static void *direct(const struct kern_product *p, int64_t *stride, dnnl_data_type_t *type)
{
    const struct kern_finish *f = &p->finish;
    float *to = kern_finish_direct(f, stride);
    *type = dnnl_f32;
    if (to != NULL || f->parameter || f->sum != NULL || !kern_finish_plain(f) ||
        f->out_type != KERN_BF16) {
        return *stride == p->n || !f->parameter ? to : NULL;
    }
    *stride = f->out_stride;
    *type = dnnl_bf16;
    return f->out;
}

/* With `all`, uses our own scratch, because queues may have none for it. */
static int scratch_for(struct kern_dnnl *d, const struct kern_product *p, void **scratch)
{
    if (!d->f32) {
        return 0;
    }
    const size_t bytes = result_bytes(p->m, p->n) +
                         packed_bytes(p->n, p->k, kern_type_bytes(p->type));
    if (bytes > d->own_bytes) {
        free(d->own);
        d->own = aligned_alloc(SCRATCH_GRAIN, core_round_up(bytes, SCRATCH_GRAIN));
        d->own_bytes = d->own != NULL ? bytes : 0;
    }
    *scratch = d->own;
    return d->own != NULL ? 0 : core_err_set(-ENOMEM, "no memory for a product's result");
}

struct finish_job {
    const struct kern_isa *isa;
    const struct kern_finish *finish;
    const float *result;
    int64_t first, rows, n;
};

static void finish_part(void *argument, unsigned index, unsigned count)
{
    const struct finish_job *job = argument;
    uint64_t begin = 0;
    uint64_t end = 0;
    core_team_share((uint64_t)job->rows, 1, index, count, &begin, &end);
    const int64_t at[2] = {job->first + (int64_t)begin, 0};
    const int64_t size[2] = {(int64_t)(end - begin), job->n};
    job->isa->finish(job->finish, job->result + (int64_t)begin * job->n, job->n, at, size);
}

int kern_product_dnnl(struct kern_dnnl *d, const struct kern_isa *isa, struct core_team *team,
                      const struct kern_product *p, void *scratch)
{
    void *queue_scratch = scratch;
    int rc = scratch_for(d, p, &scratch);
    if (rc != 0) {
        return rc;
    }
    d->threads_set((int)core_team_count(team));
    struct shape shape;
    memset(&shape, 0, sizeof shape);
    const size_t element = kern_type_bytes(p->type);
    shape.type = p->type == KERN_F32 ? dnnl_f32 : dnnl_bf16;
    shape.n = p->n;
    shape.k = p->k;
    shape.a[0] = p->a_turned ? 1 : p->a_stride;
    shape.a[1] = p->a_turned ? p->a_stride : 1;
    shape.b[0] = p->b_turned ? 1 : p->b_stride;
    shape.b[1] = p->b_turned ? p->b_stride : 1;
    float *result = scratch;
    struct operands with = {.b = p->b,
                            .packed = (char *)scratch + result_bytes(p->m, p->n),
                            .packed_bytes = packed_bytes(p->n, p->k, element)};
    int64_t stride = 0;
    char *to = direct(p, &stride, &shape.result);
    const size_t to_element = shape.result == dnnl_f32 ? 4 : 2;
    shape.c_stride = to != NULL ? stride : p->n;
    const int64_t step = run_rows(p->m, p->n);
    for (int64_t i = 0; i < p->m && rc == 0; i += step) {
        shape.m = p->m - i < step ? p->m - i : step;
        with.a = (const char *)p->a + (size_t)(i * shape.a[0]) * element;
        with.c = to != NULL ? (void *)(to + (size_t)(i * stride) * to_element) : result;
        rc = run_shape(d, &shape, &with);
        if (rc == 0 && to == NULL) {
            core_team_run(team, finish_part,
                          &(struct finish_job){isa, &p->finish, result, i, shape.m, p->n});
        }
    }
    if (rc == -ENOSPC) {
        kern_product_plain(isa, team, p, queue_scratch);
        rc = 0;
    }
    return rc;
}
