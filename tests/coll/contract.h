/* contract.h: bodies of ranks and checks of their results, for any back end. */
#ifndef TESTS_COLL_CONTRACT_H
#define TESTS_COLL_CONTRACT_H

#include "tests/coll/ranks.h"

/* Runs all five collectives, with separate arrays and in place; for COLL_BYTE, no reductions. The
 * delayed rank arrives late. */
int contract_all(struct rank *rank);
/* Checks a rank's results; sums have the bits of adding in rank order. */
void contract_check(const struct rank *rank);
void contract_check_traffic(const struct rank *rank);

/* Runs a reduce-scatter of `count` numbers as codes. Checks the sum of decoded numbers in rank
 * order, and the traffic. `borders` are positions of numbers. */
int contract_codes(struct rank *rank);

/* Gathers within groups of `within` ranks, separate and in place, then sums over all ranks. Each
 * group has its own array. */
int contract_within(struct rank *rank);

/* Runs a reduce-scatter and an all-reduce, separate and in place, in which groups of `within` ranks
 * add first. Checks that elements are the sum of the groups' rounded sums, to the bit. */
int contract_groups(struct rank *rank);
/* Checks the bytes that a process received in the reduce-scatters of contract_groups(), whose
 * arrays must be too long to be sent with the heads. `hosts`: each group is a host, so that other
 * hosts send fewer bytes. */
void contract_check_group_traffic(const struct rank *rank, bool hosts);

/* Like contract_groups(), with sums in any order. rank->own[0][0] becomes the number of elements
 * that differ from the sum in rank order. */
int contract_near(struct rank *rank);

/* Submits commands that need the result of the previous one; with two ranks the result is 2 to the
 * 40th. */
int contract_pipelined(struct rank *rank);

#endif
