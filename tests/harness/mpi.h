/* mpi.h: for programs that start processes with mpirun.openmpi or mpirun.mpich. */
#ifndef TESTS_HARNESS_MPI_H
#define TESTS_HARNESS_MPI_H

/* Skips the case without a module for Open MPI or without mpirun. Sets the environment of later
 * processes: root may start them, and sanitizers do not report leaks, deadlocks and misused
 * mutexes, which MPI's libraries have. */
void test_mpi_begin(void);
/* Like test_mpi_begin(), for MPICH. */
void test_mpich_begin(void);

#endif
