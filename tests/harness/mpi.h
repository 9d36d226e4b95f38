/* mpi.h: for programs that start processes with Open MPI's mpirun.openmpi or MPICH's
 * mpirun.mpich. */
#ifndef TESTS_HARNESS_MPI_H
#define TESTS_HARNESS_MPI_H

/* Skips the case if the build has no module for Open MPI, or the machine no mpirun. Sets the
 * environment of processes that are started later: root may start them, and sanitizers report
 * neither leaks nor deadlocks, because MPI's own libraries cause such reports. */
void test_mpi_begin(void);
/* Like test_mpi_begin(), for MPICH. */
void test_mpich_begin(void);

#endif
