/* fuzz.h: a fuzz target takes any bytes and must neither crash nor violate an assertion.
 * -Dfuzz=true builds it with libFuzzer; replay.c runs it on the seeds. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

__attribute__((visibility("default"))) int LLVMFuzzerTestOneInput(const uint8_t *data,
                                                                  size_t bytes);

#endif
