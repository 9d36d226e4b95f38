/* codec.h: the functions of a decompression library. Private to source.c and codec_*.c. One thread
 * for each state. */
#ifndef TOOLS_TEXT_DATA_CODEC_H
#define TOOLS_TEXT_DATA_CODEC_H

#include <stdbool.h>
#include <stddef.h>

struct text_codec_io {
    const char *in; /* borrowed; advanced past the input used */
    size_t in_bytes;
    char *out; /* borrowed; advanced past the output */
    size_t out_bytes;
};

struct text_codec {
    unsigned char magic[4]; /* first bytes of such a stream */
    size_t magic_bytes;
    /* Returns -ENOTSUP if tide was built without the library. */
    int (*create)(void **state);
    void (*destroy)(void *state);
    int (*restart)(void *state);
    /* Decompresses until input or room is used up; -EINVAL for broken data. */
    int (*run)(void *state, struct text_codec_io *io);
    /* Returns whether the data may end here. */
    bool (*whole)(const void *state);
};

extern const struct text_codec text_codec_gzip;
extern const struct text_codec text_codec_zstd;

#endif
