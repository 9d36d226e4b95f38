/* fake_cudnn.c: cuDNN 9 as far as cudnn.c calls it. It takes descriptors in the order that the library's
 * documents ask for (attributes before it is finalized, answers after that, parts that are final), and
 * leaves the work to the test. */
#include "tests/cuda/fake_cudnn.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { BAD_PARAM = 2000, NOT_FINAL = 2002, LAST = 3000 };
enum { ENGINE = 2, CONFIG = 3, HEURISTICS = 4, PLAN = 5, GRAPH = 15, PACK = 16, KINDS = 64 };
enum { OF_INT64 = 3, OF_POINTER = 6, OF_NOTE = 11, OF_DESCRIPTOR = 15 };
enum {
    RESULTS = 202,
    CONFIG_ENGINE = 300,
    WORKSPACE = 402,
    OPS = 801,
    IDS = 1000,
    POINTERS = 1001,
    PACK_WORKSPACE = 1003,
    NUMBER = 1301,
    NOTES = 1303
};

struct descriptor {
    int kind;
    bool final;
    int number; /* of a configuration and its engine */
    int64_t count;
    int64_t ids[FAKE_CUDNN_ARRAYS];
    void *pointers[FAKE_CUDNN_ARRAYS];
    void *workspace;
};

static struct fake_cudnn fake;

EXPORT fake_cudnn_function fake_cudnn;
struct fake_cudnn *fake_cudnn(void)
{
    return &fake;
}

static int due(int status)
{
    return ++fake.calls == fake.fail_at ? fake.fail_status : status;
}

EXPORT size_t cudnnGetVersion(void);
size_t cudnnGetVersion(void)
{
    return fake.version != 0 ? fake.version : 92600;
}

EXPORT int cudnnCreate(void **handle);
int cudnnCreate(void **handle)
{
    const int status = due(0);
    if (status == 0) {
        *handle = calloc(1, 8);
        fake.live++;
    }
    return status;
}

EXPORT int cudnnDestroy(void *handle);
int cudnnDestroy(void *handle)
{
    free(handle);
    fake.live--;
    return 0;
}

static void *stream_now;

EXPORT int cudnnSetStream(void *handle, void *stream);
int cudnnSetStream(void *handle, void *stream)
{
    stream_now = stream;
    return due(handle != NULL ? 0 : BAD_PARAM);
}

EXPORT int cudnnBackendCreateDescriptor(int kind, void **out);
int cudnnBackendCreateDescriptor(int kind, void **out)
{
    const int status = due(kind >= 0 && kind < KINDS ? 0 : BAD_PARAM);
    if (status == 0) {
        struct descriptor *made = calloc(1, sizeof *made);
        made->kind = kind;
        fake.live++;
        *out = made;
    }
    return status;
}

EXPORT int cudnnBackendDestroyDescriptor(void *at);
int cudnnBackendDestroyDescriptor(void *at)
{
    free(at);
    fake.live--;
    return 0;
}

EXPORT int cudnnBackendSetAttribute(void *at, int name, int type, int64_t count,
                                    const void *values);
int cudnnBackendSetAttribute(void *at, int name, int type, int64_t count, const void *values)
{
    struct descriptor *d = at;
    int status = d->final || count < 1 ? BAD_PARAM : 0;
    if (status == 0 && type == OF_DESCRIPTOR) {
        struct descriptor *const *parts = values;
        for (int64_t i = 0; i < count; i++) {
            status = parts[i] != NULL && (parts[i]->final || parts[i]->kind == CONFIG) ? status
                                                                                       : NOT_FINAL;
            d->number = parts[i] != NULL && parts[i]->kind == CONFIG ? parts[i]->number : d->number;
        }
        fake.ops = name == OPS ? (int)count : fake.ops;
    } else if (status == 0 && d->kind == PACK && count <= FAKE_CUDNN_ARRAYS) {
        d->count = name == PACK_WORKSPACE ? d->count : count;
        memcpy(name == IDS        ? (void *)d->ids
               : name == POINTERS ? (void *)d->pointers
                                  : (void *)&d->workspace,
               values, (size_t)count * sizeof(void *));
    }
    return due(status);
}

/* Configurations are final as they come. */
static int answer(const struct descriptor *d, int name, int64_t wanted, int64_t *count,
                  void *values)
{
    struct descriptor **parts = values;
    *count = 1;
    if (d->kind == HEURISTICS && name == RESULTS) {
        *count = fake.proposals < 0 ? 0 : 2;
        for (int i = 0; i < *count && i < wanted; i++) {
            parts[i]->number = 40 + i;
            parts[i]->final = true;
        }
    } else if (d->kind == CONFIG && name == CONFIG_ENGINE) {
        parts[0]->number = d->number;
        parts[0]->final = true;
    } else if (d->kind == ENGINE && name == NUMBER) {
        *(int64_t *)values = d->number;
    } else if (d->kind == ENGINE && name == NOTES) {
        *(int *)values = fake.note;
    } else if (d->kind == PLAN && name == WORKSPACE) {
        *(int64_t *)values = fake.workspace_bytes;
    } else {
        return BAD_PARAM;
    }
    return 0;
}

EXPORT int cudnnBackendGetAttribute(const void *at, int name, int type, int64_t wanted,
                                    int64_t *count, void *values);
int cudnnBackendGetAttribute(const void *at, int name, int type, int64_t wanted, int64_t *count,
                             void *values)
{
    const struct descriptor *d = at;
    (void)type;
    const int status = due(d->final ? 0 : NOT_FINAL);
    return status != 0 ? status : answer(d, name, wanted, count, values);
}

EXPORT int cudnnBackendFinalize(void *at);
int cudnnBackendFinalize(void *at)
{
    struct descriptor *d = at;
    int status = due(d->final ? BAD_PARAM : 0);
    if (status == 0 && d->kind == PLAN && fake.plans_refused > 0) {
        fake.plans_refused--;
        status = LAST;
    }
    d->final = status == 0;
    fake.graphs += status == 0 && d->kind == GRAPH;
    return status;
}

EXPORT int cudnnBackendExecute(void *handle, void *plan, void *pack);
int cudnnBackendExecute(void *handle, void *plan, void *pack)
{
    const struct descriptor *p = plan;
    const struct descriptor *d = pack;
    void *arrays[FAKE_CUDNN_ARRAYS] = {0};
    const int status = due(handle != NULL && p->final && d->final ? 0 : NOT_FINAL);
    for (int64_t i = 0; i < d->count; i++) {
        if (d->ids[i] >= 0 && d->ids[i] < FAKE_CUDNN_ARRAYS) {
            arrays[d->ids[i]] = d->pointers[i];
        }
    }
    return status != 0 ? status : fake.execute(stream_now, arrays, d->workspace);
}
