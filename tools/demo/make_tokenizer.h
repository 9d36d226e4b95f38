/* make_tokenizer.h: makes a tokenizer from some conversations, for a demonstration. One thread. */
#ifndef TOOLS_DEMO_MAKE_TOKENIZER_H
#define TOOLS_DEMO_MAKE_TOKENIZER_H

#include <stdint.h>

/* Writes tokenizer.json, tokenizer_config.json with a chat template, and generation_config.json to
 * `folder`, with a token for each word of the chats in the file `data`. Returns 0 or -errno; -E2BIG
 * if `vocab` is too small. */
int demo_tokenizer_make(const char *folder, const char *data, int64_t vocab);

#endif
