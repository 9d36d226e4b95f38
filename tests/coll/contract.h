/* contract.h: bodies of ranks and checks of their results that hold for every back end. */
#ifndef TESTS_COLL_CONTRACT_H
#define TESTS_COLL_CONTRACT_H

#include "tests/coll/ranks.h"

/* Runs all five collectives one after another, with separate arrays and in place; reductions are
 * left out for COLL_BYTE. The delayed rank arrives late at each of them. */
int contract_all(struct rank *rank);
/* Checks the results of one rank: sums are those in rank order, to the bit. */
void contract_check(const struct rank *rank);
void contract_check_traffic(const struct rank *rank);

/* Runs one reduce-scatter of `count` numbers of `type` as codes. Compares this rank's part with the
 * sum, in rank order, of the decoded numbers of all ranks, and the bytes received with those of the
 * codes. `borders` are positions of numbers. */
int contract_codes(struct rank *rank);

/* Gathers within each group of `within` ranks, separate and in place, and then sums over all ranks.
 * Each group has a different array, and receives nothing else. */
int contract_within(struct rank *rank);

/* Runs a reduce-scatter and an all-reduce, separate and in place, whose groups of `within` ranks
 * add first. Checks that each element of this rank's results is the sum of the groups' rounded
 * sums, to the bit, and near the exact sum. */
int contract_groups(struct rank *rank);
/* Checks the bytes that a rank, which is a process, received in the two reduce-scatters of
 * contract_groups(). Their arrays must be too long to be sent with the heads. `hosts`: each group
 * is a host; then a rank receives from other hosts an exact sum's bytes divided by `within`. */
void contract_check_group_traffic(const struct rank *rank, bool hosts);

/* Does what contract_groups() does, with sums in any order, each rounded at most once for each
 * rank. rank->own[0][0] becomes the number of elements that differ from the sum in the order of
 * ranks. */
int contract_near(struct rank *rank);

/* Submits many commands on every rank; each needs the result of the previous one. With two ranks
 * the result is 2 to the 40th. */
int contract_pipelined(struct rank *rank);

#endif
