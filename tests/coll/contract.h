/* contract.h: bodies of ranks and checks of their results that hold for every back end. */
#ifndef TESTS_COLL_CONTRACT_H
#define TESTS_COLL_CONTRACT_H

#include "tests/coll/ranks.h"

/* All five collectives one after another, with separate arrays and in place; the delayed rank is
 * late for each. */
int contract_all(struct rank *rank);
/* Checks the results of one rank: sums are those in rank order, to the bit. */
void contract_check(const struct rank *rank);
void contract_check_traffic(const struct rank *rank);

/* One reduce-scatter of `count` numbers of `type` as codes. Compares this rank's part with the sum in rank order of what the
 * codes of all ranks stand for, and the bytes received with those of the codes. `borders` are of numbers. */
int contract_codes(struct rank *rank);

/* A gather of each group of `within` ranks, separate and in place, and a sum of all after it: each group has its own array, and
 * receives nothing else. */
int contract_within(struct rank *rank);

/* Many commands in flight on every rank; each needs the result of the one before: 2 to the 40th for two. */
int contract_pipelined(struct rank *rank);

#endif
