/* mpi_application.c MODE MODEL RATES: an application that trains with libtide on two ranks. The
 * mode says who initialises MPI: own - the application, for several threads; funnel - the
 * application, for one thread; tide - libtide. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tide/engine.h>
#include <tide/world.h>

enum { RANKS = 2, ROWS = 2, LENGTH = 16, STEPS = 3, SUMS = 200 };

static const char *model, *rates;

static void need(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "rank %u: %s does not hold; %s\n", tide_world_rank(), what,
                tide_last_error());
        fflush(stderr);
        abort();
    }
}
#define NEED(condition) need(condition, #condition)

static void sum_ranks(MPI_Comm comm)
{
    int one = (int)tide_world_rank() + 1;
    int sum = 0;
    NEED(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS);
    NEED(sum == RANKS * (RANKS + 1) / 2);
}

static void *sum_meanwhile(void *comm)
{
    for (int i = 0; i < SUMS; i++) {
        sum_ranks(*(MPI_Comm *)comm);
    }
    return NULL;
}

/* Trains with the ranks of `world`, or with threads if that is NULL. Returns the last loss. */
static double train(struct tide_world *world)
{
    int32_t ids[RANKS * ROWS * LENGTH];
    struct tide_batch batches[RANKS];
    struct tide_step step = {.struct_bytes = sizeof step};
    struct tide_engine_options options;
    struct tide_engine *engine = NULL;
    for (int i = 0; i < RANKS * ROWS * LENGTH; i++) {
        ids[i] = 1 + i * i % 97;
    }
    for (int r = 0; r < RANKS; r++) {
        batches[r] = (struct tide_batch){.struct_bytes = sizeof batches[r],
                                         .rows = ROWS,
                                         .length = LENGTH,
                                         .ids = ids + (size_t)r * ROWS * LENGTH};
    }
    NEED(tide_engine_options_init(&options, sizeof options) == 0);
    options.model = model;
    options.rates = rates;
    options.world = world;
    options.ranks = RANKS;
    options.zero_stage = 2;
    options.threads = RANKS;
    options.batch = ROWS;
    options.length = LENGTH;
    NEED(tide_engine_create(NULL, &options, &engine) == 0);
    for (int s = 0; s < STEPS; s++) {
        NEED(tide_engine_step(engine, batches, RANKS, 1e-2, &step) == 0);
    }
    tide_engine_destroy(engine);
    return step.loss;
}

static void train_together(void)
{
    struct tide_world *world = NULL;
    int code = -1;
    NEED(tide_world_open(NULL, &world) == 0 && world != NULL);
    if (tide_world_rank() == 0) {
        const double loss = train(world);
        tide_world_close(world, 5);
        NEED(loss == train(NULL));
    } else {
        NEED(tide_world_follow(world, NULL, &code) == 0);
        NEED(code == 5);
        tide_world_close(world, code);
    }
}

static int ended(void)
{
    int finalized = 0;
    MPI_Finalized(&finalized);
    return finalized;
}

static void keep_own(void)
{
    MPI_Comm comm;
    pthread_t thread;
    sum_ranks(MPI_COMM_WORLD);
    NEED(MPI_Comm_dup(MPI_COMM_WORLD, &comm) == MPI_SUCCESS);
    NEED(pthread_create(&thread, NULL, sum_meanwhile, &comm) == 0);
    train_together();
    NEED(pthread_join(thread, NULL) == 0);
    NEED(!ended());
    sum_ranks(comm);
    train_together();
    NEED(!ended());
    sum_ranks(MPI_COMM_WORLD);
    NEED(MPI_Comm_free(&comm) == MPI_SUCCESS);
    NEED(MPI_Finalize() == MPI_SUCCESS);
}

static void be_refused(const char *why)
{
    struct tide_world *world = NULL;
    NEED(tide_world_open(NULL, &world) != 0 && world == NULL);
    NEED(strstr(tide_last_error(), why) != NULL);
}

int main(int argc, char **argv)
{
    const char *mode = argc == 4 ? argv[1] : "";
    int level = 0;
    model = argc == 4 ? argv[2] : NULL;
    rates = argc == 4 ? argv[3] : NULL;
    if (strcmp(mode, "own") == 0) {
        NEED(MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level) == MPI_SUCCESS);
        NEED(level == MPI_THREAD_MULTIPLE);
        keep_own();
    } else if (strcmp(mode, "funnel") == 0) {
        NEED(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) == MPI_SUCCESS);
        be_refused("without MPI_THREAD_MULTIPLE");
        NEED(!ended());
        sum_ranks(MPI_COMM_WORLD);
        NEED(MPI_Finalize() == MPI_SUCCESS);
        be_refused("was finalized earlier in this process");
    } else if (strcmp(mode, "tide") == 0) {
        train_together();
        NEED(ended());
        be_refused("was finalized earlier in this process");
    } else {
        fprintf(stderr, "usage: %s own|funnel|tide MODEL RATES\n", argv[0]);
        return 2;
    }
    printf("rank %u did all\n", tide_world_rank());
    return 0;
}
