/* make_tokenizer.h: a tokenizer for a demonstration, made of the words of some conversations. One thread. */
#ifndef TOOLS_DEMO_MAKE_TOKENIZER_H
#define TOOLS_DEMO_MAKE_TOKENIZER_H

#include <stdint.h>

/* Writes tokenizer.json, tokenizer_config.json with a chat template, and generation_config.json into
 * `folder`: byte-level, with a token for each word of the chats in the file `data`. -E2BIG where
 * these are more than `vocab` tokens; what else is wrong with the file. */
int demo_tokenizer_make(const char *folder, const char *data, int64_t vocab);

#endif
