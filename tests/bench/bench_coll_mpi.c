/* bench_coll_mpi.c: bench_coll.c with MPI's blocking functions: allreduce_us (MPI_Allreduce of one
 * double) and exchange_s (MPI_Alltoallv of 64 MiB per process). */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 64 << 20, SCALARS = 20000, ROUNDS = 9, WORLD_MAX = 64 };

static int by_value(const void *a, const void *b)
{
    const double left = *(const double *)a;
    const double right = *(const double *)b;
    return (left > right) - (left < right);
}

static double scalar_us(void)
{
    static double times[SCALARS];
    double sum = 0;
    for (int i = 0; i < SCALARS; i++) {
        const double value = 1;
        const double begun = MPI_Wtime();
        MPI_Allreduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        times[i] = MPI_Wtime() - begun;
    }
    qsort(times, SCALARS, sizeof times[0], by_value);
    return times[SCALARS / 2] * 1e6;
}

/* Returns the least seconds of an exchange of equal parts between all processes. */
static double exchange_seconds(const char *from, char *to, int rank, int world)
{
    int counts[WORLD_MAX];
    int places[WORLD_MAX];
    double least = 1e9;
    for (int r = 0; r < world; r++) {
        counts[r] = r == rank ? 0 : BYTES / world;
        places[r] = r * (BYTES / world);
    }
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        const double begun = MPI_Wtime();
        MPI_Alltoallv(from, counts, places, MPI_BYTE, to, counts, places, MPI_BYTE, MPI_COMM_WORLD);
        const double seconds = MPI_Wtime() - begun;
        least = seconds < least ? seconds : least;
    }
    return least;
}

int main(int argc, char **argv)
{
    int rank = 0;
    int world = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    char *from = malloc(BYTES);
    char *to = malloc(BYTES);
    if (world > WORLD_MAX || from == NULL || to == NULL) {
        fprintf(stderr, "bench_coll_mpi takes up to %d processes, each with 128 MiB of memory\n",
                WORLD_MAX);
        MPI_Abort(MPI_COMM_WORLD, 2);
        return 2;
    }
    memset(from, 1, BYTES);
    memset(to, 0, BYTES);
    const double scalar = scalar_us();
    const double exchange = exchange_seconds(from, to, rank, world);
    if (rank == 0) {
        printf("allreduce_us %.3f us\nexchange_s %.6f s\n", scalar, exchange);
    }
    free(from);
    free(to);
    return MPI_Finalize();
}
