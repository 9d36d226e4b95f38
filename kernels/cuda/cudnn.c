/* cudnn.c: the door of cuDNN 9. Its interface is descriptors that are made, given attributes by number and
 * finalized; the numbers that are used here are all that we know of it, so that nothing of it is needed to
 * compile. */
#include "kernels/cuda/cudnn.h"

#include <errno.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"

enum { PROPOSALS_MAX = 8, HEURISTICS_A = 3 };

/* Descriptors. */
enum {
    POINTWISE = 0,
    ENGINE = 2,
    CONFIG = 3,
    HEURISTICS = 4,
    PLAN = 5,
    OP_POINTWISE = 13,
    GRAPH = 15,
    PACK = 16,
    TENSOR = 17,
    MATMUL = 18,
    OP_MATMUL = 19,
    FOLD = 21,
    OP_FOLD = 22,
    OP_RESHAPE = 31,
    CARD = 38
};

/* Types of attributes. */
enum {
    OF_HANDLE = 0,
    OF_DATA_TYPE = 1,
    OF_BOOL = 2,
    OF_INT64 = 3,
    OF_POINTER = 6,
    OF_HEURISTICS = 8,
    OF_NOTE = 11,
    OF_MODE = 14,
    OF_DESCRIPTOR = 15,
    OF_FOLD = 18,
    OF_CHAR = 24
};

/* Attributes. */
enum {
    POINTWISE_MODE = 0,
    POINTWISE_PRECISION = 1,
    POINTWISE_AXIS = 9,
    HEURISTICS_MODE = 200,
    HEURISTICS_GRAPH = 201,
    HEURISTICS_RESULTS = 202,
    HEURISTICS_CARD = 204,
    CONFIG_ENGINE = 300,
    PLAN_HANDLE = 400,
    PLAN_CONFIG = 401,
    PLAN_WORKSPACE = 402,
    PLAN_CARD = 407,
    OP_POINTWISE_MODE = 750,
    OP_POINTWISE_X = 751,
    OP_POINTWISE_B = 752,
    OP_POINTWISE_Y = 753,
    OP_POINTWISE_CHOOSER = 758,
    GRAPH_HANDLE = 800,
    GRAPH_OPS = 801,
    TENSOR_ALIGNMENT = 900,
    TENSOR_TYPE = 901,
    TENSOR_SIZE = 902,
    TENSOR_STRIDE = 903,
    TENSOR_ID = 906,
    TENSOR_VIRTUAL = 907,
    TENSOR_BY_VALUE = 908,
    PACK_IDS = 1000,
    PACK_POINTERS = 1001,
    PACK_WORKSPACE = 1003,
    ENGINE_NUMBER = 1301,
    ENGINE_NOTES = 1303,
    MATMUL_TYPE = 1500,
    OP_MATMUL_A = 1520,
    OP_MATMUL_B = 1521,
    OP_MATMUL_C = 1522,
    OP_MATMUL_HOW = 1523,
    FOLD_HOW = 1600,
    FOLD_TYPE = 1601,
    OP_FOLD_X = 1610,
    OP_FOLD_Y = 1611,
    OP_FOLD_HOW = 1612,
    OP_RESHAPE_X = 2200,
    OP_RESHAPE_Y = 2201,
    CARD_JSON = 2702
};

enum { NOTE_NOT_THE_SAME_BITS = 4, NOTES_MAX = 16 };

struct kern_dnn {
    struct kern_dnn_calls call;
    void *library;               /* owned */
    void *handle;                /* owned; NULL for a card that is described */
    struct kern_dnn_graph cards; /* the descriptor of such a card */
};

struct kern_dnn_plan {
    struct kern_dnn_graph graph; /* with all that the plan is made of */
    void *plan;                  /* of it */
    int64_t workspace_bytes, engine;
};

/* ---- Descriptors. ---- */

static void fail(struct kern_dnn_graph *g, const char *call, int number, int status)
{
    if (g->rc == 0 && status != 0) {
        g->rc = core_err_set(-ENOTSUP, "cuDNN: %s(%d) failed with status %d", call, number, status);
    }
}

static void *make(struct kern_dnn_graph *g, int kind)
{
    void *made = NULL;
    if (g->rc == 0 && g->made_count == KERN_DNN_MADE_MAX) {
        g->rc = core_err_set(-ENOTSUP, "cuDNN: a graph of more than %d parts", KERN_DNN_MADE_MAX);
    }
    if (g->rc == 0) {
        fail(g, "cudnnBackendCreateDescriptor", kind, g->dnn->call.make(kind, &made));
    }
    if (g->rc == 0) {
        g->made[g->made_count++] = made;
    }
    return g->rc == 0 ? made : NULL;
}

static void set(struct kern_dnn_graph *g, void *at, int name, int type, int64_t count,
                const void *values)
{
    if (g->rc == 0) {
        fail(g, "cudnnBackendSetAttribute", name, g->dnn->call.set(at, name, type, count, values));
    }
}

static void set_descriptor(struct kern_dnn_graph *g, void *at, int name, void *value)
{
    set(g, at, name, OF_DESCRIPTOR, 1, &value);
}

static void set_type(struct kern_dnn_graph *g, void *at, int name, enum kern_dnn_type type)
{
    const int value = (int)type;
    set(g, at, name, OF_DATA_TYPE, 1, &value);
}

static void get(struct kern_dnn_graph *g, const void *at, int name, int type, int64_t wanted,
                int64_t *count, void *values)
{
    if (g->rc == 0) {
        fail(g, "cudnnBackendGetAttribute", name,
             g->dnn->call.get(at, name, type, wanted, count, values));
    }
}

static void finalize(struct kern_dnn_graph *g, void *at, int kind)
{
    if (g->rc == 0) {
        fail(g, "cudnnBackendFinalize", kind, g->dnn->call.finalize(at));
    }
}

static void unmake_from(struct kern_dnn_graph *g, size_t first)
{
    while (g->made_count > first) {
        (void)g->dnn->call.unmake(g->made[--g->made_count]);
    }
}

/* An operation goes to the graph's list. */
static void *operation(struct kern_dnn_graph *g, void *op, int kind, void *result)
{
    finalize(g, op, kind);
    if (g->rc == 0 && g->op_count == KERN_DNN_OPS_MAX) {
        g->rc = core_err_set(-ENOTSUP, "cuDNN: a graph of more than %d ops", KERN_DNN_OPS_MAX);
    }
    if (g->rc == 0) {
        g->ops[g->op_count++] = op;
    }
    return result;
}

void *kern_dnn_tensor(struct kern_dnn_graph *g, const struct kern_dnn_tensor *tensor)
{
    const bool yes = true;
    const int64_t alignment = 16;
    const int64_t id = tensor->id != 0 ? (int64_t)tensor->id : KERN_DNN_ARRAYS + g->next_id++;
    void *made = make(g, TENSOR);
    set(g, made, TENSOR_ID, OF_INT64, 1, &id);
    set_type(g, made, TENSOR_TYPE, tensor->type);
    set(g, made, TENSOR_SIZE, OF_INT64, 4, tensor->size);
    set(g, made, TENSOR_STRIDE, OF_INT64, 4, tensor->stride);
    set(g, made, TENSOR_ALIGNMENT, OF_INT64, 1, &alignment);
    if (tensor->id == 0) {
        set(g, made, TENSOR_VIRTUAL, OF_BOOL, 1, &yes);
    } else {
        g->ids |= 1U << tensor->id;
    }
    if (tensor->id >= KERN_DNN_SCALE) {
        set(g, made, TENSOR_BY_VALUE, OF_BOOL, 1, &yes);
    }
    finalize(g, made, TENSOR);
    return made;
}

void *kern_dnn_pointwise(struct kern_dnn_graph *g, const struct kern_dnn_pointwise *p, void *y)
{
    const int mode = (int)p->mode;
    void *how = make(g, POINTWISE);
    set(g, how, POINTWISE_MODE, OF_MODE, 1, &mode);
    set_type(g, how, POINTWISE_PRECISION,
             p->mode == KERN_DNN_INDEX       ? KERN_DNN_INT32
             : p->mode == KERN_DNN_NOT_BELOW ? KERN_DNN_BOOL
                                             : KERN_DNN_F32);
    if (p->mode == KERN_DNN_INDEX) {
        set(g, how, POINTWISE_AXIS, OF_INT64, 1, &p->axis);
    }
    finalize(g, how, POINTWISE);
    void *op = make(g, OP_POINTWISE);
    set_descriptor(g, op, OP_POINTWISE_MODE, how);
    set_descriptor(g, op, OP_POINTWISE_X, p->x);
    set_descriptor(g, op, OP_POINTWISE_Y, y);
    if (p->b != NULL) {
        set_descriptor(g, op, OP_POINTWISE_B, p->b);
    }
    if (p->chooser != NULL) {
        set_descriptor(g, op, OP_POINTWISE_CHOOSER, p->chooser);
    }
    return operation(g, op, OP_POINTWISE, y);
}

void *kern_dnn_matmul(struct kern_dnn_graph *g, void *a, void *b, void *c)
{
    void *how = make(g, MATMUL);
    set_type(g, how, MATMUL_TYPE, KERN_DNN_F32);
    finalize(g, how, MATMUL);
    void *op = make(g, OP_MATMUL);
    set_descriptor(g, op, OP_MATMUL_A, a);
    set_descriptor(g, op, OP_MATMUL_B, b);
    set_descriptor(g, op, OP_MATMUL_C, c);
    set_descriptor(g, op, OP_MATMUL_HOW, how);
    return operation(g, op, OP_MATMUL, c);
}

void *kern_dnn_fold(struct kern_dnn_graph *g, enum kern_dnn_fold fold, void *x, void *y)
{
    const int value = (int)fold;
    void *how = make(g, FOLD);
    set(g, how, FOLD_HOW, OF_FOLD, 1, &value);
    set_type(g, how, FOLD_TYPE, KERN_DNN_F32);
    finalize(g, how, FOLD);
    void *op = make(g, OP_FOLD);
    set_descriptor(g, op, OP_FOLD_X, x);
    set_descriptor(g, op, OP_FOLD_Y, y);
    set_descriptor(g, op, OP_FOLD_HOW, how);
    return operation(g, op, OP_FOLD, y);
}

void *kern_dnn_reshape(struct kern_dnn_graph *g, void *x, void *y)
{
    void *op = make(g, OP_RESHAPE);
    set_descriptor(g, op, OP_RESHAPE_X, x);
    set_descriptor(g, op, OP_RESHAPE_Y, y);
    return operation(g, op, OP_RESHAPE, y);
}

/* ---- Plans. ---- */

/* Whether the way adds in an order that is the same each time. */
static bool repeats(struct kern_dnn_graph *g, void *engine)
{
    int notes[NOTES_MAX];
    int64_t count = 0;
    get(g, engine, ENGINE_NOTES, OF_NOTE, NOTES_MAX, &count, notes);
    for (int64_t i = 0; i < count && i < NOTES_MAX; i++) {
        if (notes[i] == NOTE_NOT_THE_SAME_BITS) {
            return false;
        }
    }
    return g->rc == 0;
}

/* A plan of the proposed way, where it is one that can be used. */
static void plan_try(struct kern_dnn_plan *p, void *config, size_t workspace_bytes)
{
    struct kern_dnn_graph *g = &p->graph;
    int64_t count = 0;
    void *engine = make(g, ENGINE);
    get(g, config, CONFIG_ENGINE, OF_DESCRIPTOR, 1, &count, &engine);
    get(g, engine, ENGINE_NUMBER, OF_INT64, 1, &count, &p->engine);
    if (g->rc == 0 && !repeats(g, engine) && g->rc == 0) {
        g->rc = core_err_set(-ENOTSUP, "cuDNN's engine %lld has other bits each time",
                             (long long)p->engine);
    }
    void *plan = make(g, PLAN);
    if (g->dnn->handle != NULL) {
        set(g, plan, PLAN_HANDLE, OF_HANDLE, 1, &g->dnn->handle);
    } else {
        set_descriptor(g, plan, PLAN_CARD, g->dnn->cards.made[0]);
    }
    set_descriptor(g, plan, PLAN_CONFIG, config);
    finalize(g, plan, PLAN);
    get(g, plan, PLAN_WORKSPACE, OF_INT64, 1, &count, &p->workspace_bytes);
    if (g->rc == 0 && (p->workspace_bytes < 0 || (size_t)p->workspace_bytes > workspace_bytes)) {
        g->rc = core_err_set(-ENOTSUP,
                             "cuDNN's engine %lld takes %lld bytes of workspace, and %zu are there",
                             (long long)p->engine, (long long)p->workspace_bytes, workspace_bytes);
    }
    p->plan = g->rc == 0 ? plan : NULL;
}

/* Proposals in the library's order; the last one's sentence stays where none can be used. */
static void plan_choose(struct kern_dnn_plan *p, size_t workspace_bytes)
{
    struct kern_dnn_graph *g = &p->graph;
    const int mode = HEURISTICS_A;
    int64_t count = 0;
    void *configs[PROPOSALS_MAX] = {NULL};
    void *graph = make(g, GRAPH);
    set(g, graph, GRAPH_OPS, OF_DESCRIPTOR, (int64_t)g->op_count, g->ops);
    if (g->dnn->handle != NULL) {
        set(g, graph, GRAPH_HANDLE, OF_HANDLE, 1, &g->dnn->handle);
    }
    finalize(g, graph, GRAPH);
    void *heuristics = make(g, HEURISTICS);
    set_descriptor(g, heuristics, HEURISTICS_GRAPH, graph);
    set(g, heuristics, HEURISTICS_MODE, OF_HEURISTICS, 1, &mode);
    if (g->dnn->handle == NULL) {
        set_descriptor(g, heuristics, HEURISTICS_CARD, g->dnn->cards.made[0]);
    }
    finalize(g, heuristics, HEURISTICS);
    for (int i = 0; i < PROPOSALS_MAX; i++) {
        configs[i] = make(g, CONFIG);
    }
    get(g, heuristics, HEURISTICS_RESULTS, OF_DESCRIPTOR, PROPOSALS_MAX, &count, configs);
    if (g->rc == 0 && count == 0) {
        g->rc = core_err_set(-ENOTSUP, "cuDNN proposes no way for this shape");
    }
    const size_t before = g->made_count;
    for (int64_t i = 0; i < count && i < PROPOSALS_MAX && p->plan == NULL; i++) {
        unmake_from(g, before);
        g->rc = 0;
        plan_try(p, configs[i], workspace_bytes);
    }
}

int kern_dnn_plan_create(struct kern_dnn *dnn, const struct kern_dnn_shape *shape,
                         size_t workspace_bytes, struct kern_dnn_plan **out)
{
    struct kern_dnn_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) {
        return core_err_set(-ENOMEM, "no memory for a plan of cuDNN");
    }
    plan->graph.dnn = dnn;
    if (shape->grad) {
        kern_dnn_graph_gradient(&plan->graph, shape);
    } else {
        kern_dnn_graph_forward(&plan->graph, shape);
    }
    plan_choose(plan, workspace_bytes);
    const int rc = plan->graph.rc;
    if (rc != 0) {
        kern_dnn_plan_destroy(plan);
        return rc;
    }
    *out = plan;
    return 0;
}

void kern_dnn_plan_destroy(struct kern_dnn_plan *plan)
{
    if (plan != NULL) {
        unmake_from(&plan->graph, 0);
        free(plan);
    }
}

size_t kern_dnn_plan_workspace_bytes(const struct kern_dnn_plan *plan)
{
    return (size_t)plan->workspace_bytes;
}

int64_t kern_dnn_plan_engine(const struct kern_dnn_plan *plan)
{
    return plan->engine;
}

int kern_dnn_plan_run(struct kern_dnn_plan *plan, void *stream, const void *arrays[KERN_DNN_ARRAYS],
                      float scale, void *workspace)
{
    struct kern_dnn *dnn = plan->graph.dnn;
    struct kern_dnn_graph run = {.dnn = dnn};
    const float floor = -FLT_MAX;
    const float one = 1.0f;
    int64_t ids[KERN_DNN_ARRAYS];
    const void *pointers[KERN_DNN_ARRAYS];
    int64_t count = 0;
    arrays[KERN_DNN_SCALE] = &scale;
    arrays[KERN_DNN_FLOOR] = &floor;
    arrays[KERN_DNN_ONE] = &one;
    for (int id = 1; id < KERN_DNN_ARRAYS; id++) {
        if (plan->graph.ids >> id & 1) {
            ids[count] = id;
            pointers[count++] = arrays[id];
        }
    }
    void *pack = make(&run, PACK);
    set(&run, pack, PACK_IDS, OF_INT64, count, ids);
    set(&run, pack, PACK_POINTERS, OF_POINTER, count, pointers);
    set(&run, pack, PACK_WORKSPACE, OF_POINTER, 1, &workspace);
    finalize(&run, pack, PACK);
    if (run.rc == 0) {
        fail(&run, "cudnnSetStream", 0, dnn->call.stream(dnn->handle, stream));
    }
    if (run.rc == 0) {
        fail(&run, "cudnnBackendExecute", 0, dnn->call.execute(dnn->handle, plan->plan, pack));
    }
    unmake_from(&run, 0);
    return run.rc;
}

/* ---- The library. ---- */

int kern_dnn_open(const char *described, struct kern_dnn **out)
{
    struct kern_dnn *dnn = calloc(1, sizeof *dnn);
    if (dnn == NULL) {
        return core_err_set(-ENOMEM, "no memory for cuDNN");
    }
    int rc = kern_dnn_load(&dnn->call, &dnn->library);
    if (rc == 0) {
        struct kern_dnn_graph *g = &dnn->cards;
        g->dnn = dnn;
        if (described != NULL) {
            void *card = make(g, CARD);
            set(g, card, CARD_JSON, OF_CHAR, (int64_t)strlen(described), described);
            finalize(g, card, CARD);
        } else {
            fail(g, "cudnnCreate", 0, dnn->call.create(&dnn->handle));
        }
        rc = g->rc;
    }
    if (rc != 0) {
        kern_dnn_close(dnn);
        return rc;
    }
    *out = dnn;
    return 0;
}

void kern_dnn_close(struct kern_dnn *dnn)
{
    if (dnn == NULL) {
        return;
    }
    unmake_from(&dnn->cards, 0);
    if (dnn->handle != NULL) {
        (void)dnn->call.destroy(dnn->handle);
    }
    kern_dnn_unload(dnn->library);
    free(dnn);
}

size_t kern_dnn_version(const struct kern_dnn *dnn)
{
    return dnn->call.version();
}
