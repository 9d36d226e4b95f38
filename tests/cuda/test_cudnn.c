/* Proves when attention goes by cuDNN, with a played one (fake_cudnn.c) on the emulated card: only where
 * it computes the same thing, agrees and is the faster; and that whatever it refuses ends with our own
 * kernel's results and a sentence that says which call it was. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/cudnn.h"
#include "kernels/cuda/table.h"
#include "tests/cuda/fake_cudnn.h"
#include "tests/dev/fake_cuda.h"
#include "tests/harness/heard.h"
#include "tests/kernels/rig.h"

enum { LENGTH = 70, HEADS = 2, DIM = 64, WIDTH = HEADS * DIM };

static struct fake_cudnn *fake;
static int executed;
static int64_t length; /* of the job: each its own shape */
static struct kern_attention_grad_arguments job;

/* ---- What the played library computes. ---- */

static int spoil(void *context, const void *arguments)
{
    void *o;
    (void)context;
    memcpy(&o, arguments, sizeof o);
    memset((uint16_t *)o + WIDTH, 0, DIM); /* the first query has a dq of zeros as it is */
    return 0;
}

static int execute(void *stream, void *arrays[FAKE_CUDNN_ARRAYS], void *workspace)
{
    const struct dev_launch where = {.stream = stream,
                                     .scratch = arrays[KERN_DNN_DELTA],
                                     .scratch_bytes = kern_cuda_delta_bytes(&job.forward)};
    struct kern_attention_grad_arguments g = job;
    g.forward.q = arrays[KERN_DNN_Q];
    g.forward.k = arrays[KERN_DNN_K];
    g.forward.v = arrays[KERN_DNN_V];
    g.forward.o = arrays[KERN_DNN_O];
    g.forward.lse = arrays[KERN_DNN_LSE];
    g.forward.scale = *(float *)arrays[KERN_DNN_SCALE];
    g.d_o = arrays[KERN_DNN_D_O];
    g.dq = arrays[KERN_DNN_DQ];
    g.dk = arrays[KERN_DNN_DK];
    g.dv = arrays[KERN_DNN_DV];
    executed++;
    if (*(float *)arrays[KERN_DNN_FLOOR] > -1e38f || (uintptr_t)workspace % 256 != 0) {
        return 1;
    }
    return g.dq != NULL ? kern_cuda_attention_grad_mma(&where, &g)
                        : kern_cuda_attention_mma(&where, &g.forward);
}

static int execute_wrongly(void *stream, void *arrays[FAKE_CUDNN_ARRAYS], void *workspace)
{
    const int rc = execute(stream, arrays, workspace);
    void *o = arrays[arrays[KERN_DNN_DQ] != NULL ? KERN_DNN_DQ : KERN_DNN_O];
    fake_stream_run(stream, spoil, &o, sizeof o);
    return rc;
}

/* ---- The cases' beginnings and ends. ---- */

static void library_begin(void)
{
    fake_cudnn_function *function;
    void *library = dlopen(getenv("FAKE_CUDNN"), RTLD_NOW | RTLD_LOCAL);
    check_true(library != NULL);
    void *symbol = dlsym(library, "fake_cudnn");
    check_true(symbol != NULL);
    memcpy(&function, &symbol, sizeof function);
    fake = function();
    *fake = (struct fake_cudnn){.execute = execute};
    executed = 0;
    setenv("TIDE_CUDNN", getenv("FAKE_CUDNN"), 1);
    test_listen(CORE_LOG_INFO);
}

static void library_end(void)
{
    test_listen_end();
    check_int(fake->live, ==, 0);
    unsetenv("TIDE_CUDNN");
}

static void begin(const char *path)
{
    const struct kern_options options = {.cuda_choices = path};
    library_begin();
    fake_generation(
        8); /* whose own kernel is not checked first, which takes longer than all this */
    rig_open(&options, 1);
}

/* The same with cuDNN asked for by hand: it is not timed. */
static void begin_by_hand(void)
{
    setenv("TIDE_ATTENTION", "cudnn", 1);
    begin(NULL);
    unsetenv("TIDE_ATTENTION");
}

static void end(void)
{
    rig_close();
    library_end();
}

static void *array(int64_t width)
{
    return rig_random(KERN_BF16, length * width, 1.0);
}

static void make_job(int64_t tokens)
{
    length = tokens;
    rig_case(7);
    job = (struct kern_attention_grad_arguments){
        .forward = {.type = KERN_BF16,
                    .rows = 1,
                    .length = length,
                    .heads = HEADS,
                    .kv_heads = 1,
                    .head_dim = DIM,
                    .scale = 0.125f,
                    .q = array(WIDTH),
                    .q_stride = WIDTH,
                    .k = array(DIM),
                    .k_stride = DIM,
                    .v = array(DIM),
                    .v_stride = DIM,
                    .o = rig_zeros(KERN_BF16, length * WIDTH),
                    .o_stride = WIDTH,
                    .lse = rig_zeros(KERN_F32, HEADS * length)},
        .d_o = array(WIDTH),
        .d_o_stride = WIDTH,
        .dq = rig_zeros(KERN_BF16, length * WIDTH),
        .dq_stride = WIDTH,
        .dk = rig_zeros(KERN_BF16, length * DIM),
        .dk_stride = DIM,
        .dv = rig_zeros(KERN_BF16, length * DIM),
        .dv_stride = DIM,
    };
}

static void forward(void)
{
    rig_check(KERN_ATTENTION, &job.forward, (struct rig_bound){2.0, 65536.0}, job.forward.o,
              job.forward.lse, NULL);
}

static void gradient(void)
{
    rig_check(KERN_ATTENTION_GRAD, &job, (struct rig_bound){2.0, 1e5}, job.dq, job.dk, job.dv,
              NULL);
}

/* ---- Cases. ---- */

/* Once compared it computes alone, both ways, and waits for nothing; a shape whose numbers are wrong, or
 * that fails while it is compared, is ours; one that fails later ends the op. */
static void it_is_used_by_hand(void)
{
    begin_by_hand();
    make_job(LENGTH);
    forward();
    const int calls = fake->calls;
    check_int(executed, ==, 2);
    check_int(fake->ops, ==, 14);
    forward();
    const int run = fake->calls - calls;
    check_int(executed, ==, 3);
    gradient();
    check_int(executed, ==, 5);
    check_int(fake->ops, ==, 23);
    gradient();
    check_int(executed, ==, 6);
    check_int(fake->graphs, ==, 2);
    check_string(test_heard(), "");

    fake->execute = execute_wrongly;
    make_job(LENGTH - 1);
    forward();
    forward();
    check_int(executed, ==, 7);
    check_uint(test_heard_lines("cuDNN's numbers are wrong on this card"), ==, 1);
    gradient();
    gradient();
    check_int(executed, ==, 8);
    check_uint(test_heard_lines("cuDNN's numbers are wrong on this card"), ==, 2);

    fake->execute = execute;
    make_job(LENGTH - 2);
    fake->calls = 0;
    fake->fail_at = calls - run - 1; /* of cudnnCreate too, which has been */
    fake->fail_status = 5000;
    forward();
    forward();
    check_int(executed, ==, 8);
    check_uint(test_heard_lines(""), ==, 2); /* the first refusal alone is told at this level */

    make_job(LENGTH);
    fake->fail_at = fake->calls + run;
    check_int(rig_run(KERN_ATTENTION, &job.forward), !=, 0);
    check_contains(core_err_sentence(), "cudnnBackendExecute(0) failed with status 5000");
    check_int(executed, ==, 8);
    end();
}

static struct kern_dnn_shape shape_of(int grad)
{
    return (struct kern_dnn_shape){.rows = 1,
                                   .length = LENGTH,
                                   .heads = HEADS,
                                   .kv_heads = 1,
                                   .q_stride = WIDTH,
                                   .k_stride = DIM,
                                   .v_stride = DIM,
                                   .o_stride = WIDTH,
                                   .head_dim = DIM,
                                   .type = KERN_BF16,
                                   .grad = (uint8_t)grad};
}

static int execute_nothing(void *stream, void *arrays[FAKE_CUDNN_ARRAYS], void *workspace)
{
    (void)stream;
    (void)arrays;
    (void)workspace;
    return 0;
}

/* Opens, makes a plan and runs it, with the n-th call failing. 1: it failed and said so. */
static int one_fails(int n, int grad)
{
    char status[40];
    struct kern_dnn *dnn = NULL;
    struct kern_dnn_plan *plan = NULL;
    const struct kern_dnn_shape shape = shape_of(grad);
    const void *arrays[KERN_DNN_ARRAYS] = {NULL};
    *fake = (struct fake_cudnn){.fail_at = n, .fail_status = 4000 + n, .execute = execute_nothing};
    int rc = kern_dnn_open(NULL, &dnn);
    rc = rc == 0 ? kern_dnn_plan_create(dnn, &shape, 0, &plan) : rc;
    if (rc == 0) {
        const bool is_second = kern_dnn_plan_engine(plan) == 41;
        rc = kern_dnn_plan_run(plan, NULL, arrays, 1.0f, NULL);
        check_true(rc != 0 || is_second || fake->calls < n);
    }
    if (rc != 0) {
        snprintf(status, sizeof status, ") failed with status %d", 4000 + n);
        check_int(rc, ==, -ENOTSUP);
        check_contains(core_err_sentence(), status);
        check_contains(core_err_sentence(), "cuDNN: cudnn");
    }
    kern_dnn_plan_destroy(plan);
    kern_dnn_close(dnn);
    check_int(fake->live, ==, 0);
    return rc != 0;
}

/* Each call in turn, of both graphs, until none does. */
static void every_call_may_fail(void)
{
    library_begin();
    for (int grad = 0; grad < 2; grad++) {
        int failed = 0;
        int n = 0;
        do {
            failed += one_fails(++n, grad);
        } while (fake->calls >= n);
        check_int(failed, >, grad ? 380 : 230);
    }
    library_end();
}

/* Asks for attention; ours is to be used, and the one line of the log says why. */
static void check_refused(const char *sentence)
{
    struct kern_dnn_ways *ways = NULL;
    bool taken = true;
    const struct dev_launch where = {.scratch_bytes = 4096};
    uint16_t *numbers = aligned_alloc(64, 64 * WIDTH);
    struct kern_attention_arguments a = {.type = KERN_BF16,
                                         .rows = 1,
                                         .length = 1,
                                         .heads = HEADS,
                                         .kv_heads = HEADS,
                                         .head_dim = DIM,
                                         .scale = 0.125f,
                                         .q = numbers,
                                         .q_stride = WIDTH,
                                         .k = numbers,
                                         .k_stride = WIDTH,
                                         .v = numbers,
                                         .v_stride = WIDTH,
                                         .o = numbers + WIDTH,
                                         .o_stride = WIDTH,
                                         .lse = (float *)(void *)(numbers + 2 * WIDTH)};
    check_int(kern_dnn_ways_create(NULL, true, &ways), ==, 0);
    for (int i = 0; i < 2; i++) {
        check_int(kern_dnn_attention(ways, &where, &a, &taken), ==, 0);
        check_true(!taken);
    }
    kern_dnn_ways_destroy(ways);
    free(numbers);
    check_int(executed, ==, 0);
    library_end();
    check_uint(test_heard_lines(""), ==, 1);
    check_contains(test_heard(), sentence);
}

static void what_fails_leaves_it_to_ours(void)
{
    static const struct {
        struct fake_cudnn set;
        const char *sentence;
    } refusals[] = {
        {{.fail_at = 1, .fail_status = 5},
         "attention is our own: cuDNN: cudnnCreate(0) failed with status 5"},
        {{.fail_at = 2, .fail_status = 5},
         "by our own kernel: cuDNN: cudnnBackendCreateDescriptor(17) failed with status 5"},
        {{.fail_at = 3, .fail_status = 5},
         "by our own kernel: cuDNN: cudnnBackendSetAttribute(906) failed with status 5"},
        {{.workspace_bytes = 4097}, "takes 4097 bytes of workspace, and 4096 are there"},
        {{.note = 4}, "cuDNN's engine 41 has other bits each time"},
        {{.proposals = -1}, "cuDNN proposes no way for this shape"},
        {{.plans_refused = 2}, "cudnnBackendFinalize(5) failed with status 3000"},
        {{.version = 80907}, "is version 80907, not one of 9"}};
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        library_begin();
        *fake = refusals[i].set;
        check_refused(refusals[i].sentence);
    }
    library_begin();
    setenv("TIDE_CUDNN", "/nowhere/libcudnn.so.9", 1);
    check_refused("cuDNN is not used, attention is our own: /nowhere/libcudnn.so.9");
    library_begin();
    Dl_info here;
    check_true(dladdr((void *)(uintptr_t)&malloc, &here) != 0);
    setenv("TIDE_CUDNN", here.dli_fname, 1);
    check_refused("has no function cudnnGetVersion");
}

static void it_is_asked_for_what_is_the_same(void)
{
    static const int32_t starts[1];
    begin(NULL);
    make_job(LENGTH);
    struct kern_attention_grad_arguments g = job;
    const struct kern_attention_arguments *a = &g.forward;
    check_true(kern_dnn_takes(a, NULL) && kern_dnn_takes(a, &g));
    g.forward.window = LENGTH;
    check_true(kern_dnn_takes(a, NULL));
    g.forward.window = LENGTH - 1;
    check_true(!kern_dnn_takes(a, NULL));
    g = job;
    g.forward.starts = starts;
    check_true(!kern_dnn_takes(a, NULL));
    g = job;
    g.forward.head_dim = 96;
    check_true(!kern_dnn_takes(a, NULL));
    g = job;
    g.forward.type = KERN_F32;
    check_true(!kern_dnn_takes(a, NULL));
    g = job;
    g.forward.o = (void *)(uintptr_t)g.forward.q;
    check_true(!kern_dnn_takes(a, NULL));
    g = job;
    g.dq = (void *)(uintptr_t)g.d_o;
    check_true(kern_dnn_takes(a, NULL));
    check_true(!kern_dnn_takes(a, &g));
    g = job;
    g.dk_stride = (int64_t)1 << 32;
    check_true(!kern_dnn_takes(a, &g));
    end();
}

static size_t lines_of(const char *path)
{
    size_t lines = 0;
    FILE *file = fopen(path, "re");
    for (int c = 0; file != NULL && (c = fgetc(file)) != EOF;) {
        lines += c == '\n';
    }
    if (file != NULL) {
        fclose(file);
    }
    return lines;
}

/* The played card's events tell one time for both, and ours stays where it is not slower: the choice is
 * kept, and the next run asks for no plan. A kept choice of the other is taken without a comparison. */
static void choices_are_kept(void)
{
    char path[1024];
    char text[4096] = "";
    snprintf(path, sizeof path, "%s/choices", test_directory());
    begin(path);
    make_job(LENGTH);
    forward();
    const int first = executed;
    check_int(first, >, 1);
    forward();
    check_int(executed, ==, first);
    end();
    check_int(lines_of(path), ==, 1);
    check_contains(test_heard(), "cuDNN takes ");
    begin(path);
    make_job(LENGTH);
    forward();
    check_int(executed, ==, 0);
    check_int(fake->graphs, ==, 0);
    end();
    check_contains(test_heard(), "it was measured to be the faster one");
    FILE *file = fopen(path, "re");
    check_true(file != NULL && fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    char *way = strrchr(text, '|') + 1; /* bytes of two numbers: whose it is, and its engine */
    way[1] = '2';
    memcpy(way + 16, "28", 2);
    file = fopen(path, "we");
    check_true(file != NULL && fwrite(text, 1, strlen(text), file) == strlen(text));
    fclose(file);
    begin(path);
    make_job(LENGTH);
    forward();
    check_int(executed, ==, 1);
    end();
    check_string(test_heard(), "");
    check_int(lines_of(path), ==, 1);
}

/* Who is asked: with a file of choices, or by hand; and a name that is none is refused. */
static void the_environment_chooses(void)
{
    static const struct {
        const char *attention, *choices;
        bool asked, leaves_out;
    } rows[] = {{NULL, NULL, false, false},
                {NULL, "file", true, false},
                {"own", "file", false, false},
                {"mma", "file", false, true},
                {"cudnn", NULL, true, false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct kern_cuda *cuda = NULL;
        const struct kern_options options = {.products = KERN_PRODUCTS_PLAIN,
                                             .cuda_choices = rows[i].choices};
        if (rows[i].attention != NULL) {
            setenv("TIDE_ATTENTION", rows[i].attention, 1);
        }
        check_int(kern_cuda_create(&options, &cuda), ==, 0);
        unsetenv("TIDE_ATTENTION");
        check_true((cuda->dnn != NULL) == rows[i].asked);
        check_true((cuda->sm90 == KERN_SM90_LEFT_OUT) == rows[i].leaves_out);
        kern_cuda_destroy(cuda);
    }
    const struct kern_options options = {.products = KERN_PRODUCTS_PLAIN};
    struct kern_cuda *cuda = NULL;
    setenv("TIDE_ATTENTION", "flash", 1);
    check_int(kern_cuda_create(&options, &cuda), ==, -EINVAL);
    unsetenv("TIDE_ATTENTION");
    check_contains(core_err_sentence(), "TIDE_ATTENTION is flash; it may be mma, own or cudnn");
}

RIG_MAIN({"it_is_used_by_hand", it_is_used_by_hand}, {"every_call_may_fail", every_call_may_fail},
         {"what_fails_leaves_it_to_ours", what_fails_leaves_it_to_ours},
         {"it_is_asked_for_what_is_the_same", it_is_asked_for_what_is_the_same},
         {"choices_are_kept", choices_are_kept},
         {"the_environment_chooses", the_environment_chooses})
