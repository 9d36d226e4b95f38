/* make_tokenizer.h: makes a tokenizer for a demonstration from the words of some conversations. One
 * thread. */
#ifndef TOOLS_DEMO_MAKE_TOKENIZER_H
#define TOOLS_DEMO_MAKE_TOKENIZER_H

#include <stdint.h>

/* Writes tokenizer.json, tokenizer_config.json with a chat template, and generation_config.json to
 * `folder`. The tokenizer is byte-level and has a token for each word of the chats in the file
 * `data`. Returns 0, or -errno with a message; -E2BIG if that takes more than `vocab` tokens. */
int demo_tokenizer_make(const char *folder, const char *data, int64_t vocab);

#endif
