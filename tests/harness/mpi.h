/* mpi.h: for programs that start processes with mpirun.openmpi or mpirun.mpich. */
#ifndef TESTS_HARNESS_MPI_H
#define TESTS_HARNESS_MPI_H

/* Skips the case if the build has no module for Open MPI, or the machine no mpirun. Sets the
 * environment of later processes: root may start them, and sanitizers report neither leaks nor
 * deadlocks, which MPI's libraries cause. */
void test_mpi_begin(void);
/* Like test_mpi_begin(), for MPICH. */
void test_mpich_begin(void);

#endif
