/* fuzz.h: what a fuzz target is: one function that takes any bytes and must neither crash nor break
 * a promise (assert). Built with libFuzzer by -Dfuzz=true; in every build replay.c runs the seeds. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

__attribute__((visibility("default"))) int LLVMFuzzerTestOneInput(const uint8_t *data,
                                                                  size_t bytes);

#endif
