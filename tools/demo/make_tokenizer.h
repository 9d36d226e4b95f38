/* make_tokenizer.h: makes a tokenizer from some conversations, for a demonstration. One thread. */
#ifndef TOOLS_DEMO_MAKE_TOKENIZER_H
#define TOOLS_DEMO_MAKE_TOKENIZER_H

#include <stdint.h>

/* Writes tokenizer.json, tokenizer_config.json with a chat template, and generation_config.json to
 * `folder`, with a token for each word of 2 to 31 bytes of the chats in the file `data`. Fails if
 * `vocab` is too small. */
int demo_tokenizer_make(const char *folder, const char *data, int64_t vocab);

#endif
