/* bench_peer.h: a peer: a separate process that answers lines with lines. One peer at a time. */
#ifndef TESTS_BENCH_BENCH_PEER_H
#define TESTS_BENCH_BENCH_PEER_H

#include <stdbool.h>
#include <stddef.h>

/* Starts python with tests/bench/SCRIPT and up to three arguments. Ends the program on failure. */
void bench_peer_start(const char *python, const char *script, const char *const words[3]);

/* Sends a question and reads up to the line that starts with `key`, whose remainder becomes
 * `answer`. Prints lines that start with "note ". Ends the program if the peer has ended. */
void bench_peer_ask(const char *question, const char *key, char *answer, size_t size);

void bench_peer_end(void);

#endif
