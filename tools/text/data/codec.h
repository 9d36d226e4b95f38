/* codec.h: what unpacks a compressed stream: a recipe a library, in one file of its name, which is
 * the library's door. Private to source.c and the codec_*.c. One thread a state. */
#ifndef TOOLS_TEXT_DATA_CODEC_H
#define TOOLS_TEXT_DATA_CODEC_H

#include <stdbool.h>
#include <stddef.h>

struct text_codec_io {
    const char *in; /* borrowed from the caller; moved behind what was taken */
    size_t in_bytes;
    char *out; /* borrowed from the caller; moved behind what was made */
    size_t out_bytes;
};

struct text_codec {
    unsigned char magic[4]; /* the first bytes of such a stream */
    size_t magic_bytes;
    /* -ENOTSUP, with a sentence, where tide was built without the library. */
    int (*create)(void **state);
    void (*destroy)(void *state);
    int (*restart)(void *state);
    /* Unpacks as far as there is input and room. -EINVAL with a sentence where the data is broken. */
    int (*run)(void *state, struct text_codec_io *io);
    /* May the data end here? */
    bool (*whole)(const void *state);
};

extern const struct text_codec text_codec_gzip;
extern const struct text_codec text_codec_zstd;

#endif
