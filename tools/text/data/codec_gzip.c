/* codec_gzip.c: the wrapper of zlib: gzip members, one after the other. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <zlib.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "tools/text/data/codec.h"

struct gzip {
    z_stream stream;
    bool ended; /* a member has ended, and no other has begun */
};

enum { WINDOW_BITS = 15, GZIP_ALONE = 16 }; /* adding 16 makes zlib expect a gzip header */

static int gzip_create(void **state)
{
    struct gzip *gzip = core_charge_zeroed(1, sizeof *gzip);
    if (gzip == NULL || inflateInit2(&gzip->stream, WINDOW_BITS + GZIP_ALONE) != Z_OK) {
        core_charge_free(gzip);
        return core_err_set(-ENOMEM, "no memory to unpack gzip");
    }
    *state = gzip;
    return 0;
}

static void gzip_destroy(void *state)
{
    struct gzip *gzip = state;
    if (gzip != NULL) {
        inflateEnd(&gzip->stream);
        core_charge_free(gzip);
    }
}

static int gzip_restart(void *state)
{
    struct gzip *gzip = state;
    gzip->ended = false;
    return inflateReset(&gzip->stream) == Z_OK ? 0 : core_err_set(-EIO, "gzip cannot be restarted");
}

static unsigned at_most(size_t bytes)
{
    return bytes > INT_MAX ? (unsigned)INT_MAX : (unsigned)bytes;
}

static int gzip_run(void *state, struct text_codec_io *io)
{
    struct gzip *gzip = state;
    z_stream *stream = &gzip->stream;
    while (io->in_bytes > 0 && io->out_bytes > 0) {
        if (gzip->ended && *io->in == '\0') { /* tapes and some packers pad with zeros */
            io->in++;
            io->in_bytes--;
            continue;
        }
        if (gzip->ended) { /* another member follows */
            inflateReset(stream);
            gzip->ended = false;
        }
        const unsigned in = at_most(io->in_bytes);
        const unsigned out = at_most(io->out_bytes);
        union { /* zlib's pointer lacks the const */
            const char *given;
            Bytef *taken;
        } from = {.given = io->in};
        stream->next_in = from.taken;
        stream->avail_in = in;
        stream->next_out = (Bytef *)io->out;
        stream->avail_out = out;
        const int rc = inflate(stream, Z_NO_FLUSH);
        io->in += in - stream->avail_in;
        io->in_bytes -= in - stream->avail_in;
        io->out += out - stream->avail_out;
        io->out_bytes -= out - stream->avail_out;
        if (rc == Z_STREAM_END) {
            gzip->ended = true;
        } else if (rc == Z_BUF_ERROR) {
            return 0; /* needs more input or room */
        } else if (rc == Z_MEM_ERROR) {
            return core_err_set(-ENOMEM, "no memory to unpack gzip");
        } else if (rc != Z_OK) {
            return core_err_set(-EINVAL, "broken gzip data: %s",
                                stream->msg != NULL ? stream->msg : "unknown reason");
        }
    }
    return 0;
}

static bool gzip_whole(const void *state)
{
    return ((const struct gzip *)state)->ended;
}

const struct text_codec text_codec_gzip = {
    .magic = {0x1F, 0x8B},
    .magic_bytes = 2,
    .create = gzip_create,
    .destroy = gzip_destroy,
    .restart = gzip_restart,
    .run = gzip_run,
    .whole = gzip_whole,
};
