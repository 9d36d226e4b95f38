/* codec_zstd.c: the wrapper of zstd: frames, one after the other. */
#include <errno.h>
#include <stdlib.h>
#include <zstd.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "tools/text/data/codec.h"

struct zstd {
    ZSTD_DStream *stream;       /* owned */
    struct core_budget *budget; /* borrowed: charged for the stream; NULL: none */
    uint64_t charged;
    bool ended; /* a frame has ended, and no other has begun */
};

static void zstd_destroy(void *state)
{
    struct zstd *zstd = state;
    if (zstd != NULL) {
        ZSTD_freeDStream(zstd->stream);
        core_charge_give(zstd->budget, zstd->charged);
        core_charge_free(zstd);
    }
}

static int zstd_create(void **state)
{
    struct zstd *zstd = core_charge_zeroed(1, sizeof *zstd);
    if (zstd == NULL || (zstd->stream = ZSTD_createDStream()) == NULL) {
        core_charge_free(zstd);
        return core_err_set(-ENOMEM, "no memory to unpack zstd");
    }
    zstd->budget = core_charge_bound();
    *state = zstd;
    return 0;
}

static int zstd_restart(void *state)
{
    struct zstd *zstd = state;
    zstd->ended = false;
    const size_t rc = ZSTD_initDStream(zstd->stream);
    return ZSTD_isError(rc) ? core_err_set(-EIO, "zstd cannot be restarted") : 0;
}

/* Charges mostly the window of a frame, up to 128 MiB. */
static int charge(struct zstd *zstd)
{
    const uint64_t bytes = ZSTD_sizeof_DStream(zstd->stream);
    const uint64_t more = bytes > zstd->charged ? bytes - zstd->charged : 0;
    if (core_charge_take(zstd->budget, more) != 0) {
        return core_err_set(-ENOMEM, "no memory for the %zu bytes that unpacking zstd needs",
                            (size_t)bytes);
    }
    zstd->charged += more;
    return 0;
}

static int zstd_run(void *state, struct text_codec_io *io)
{
    struct zstd *zstd = state;
    ZSTD_inBuffer in = {.src = io->in, .size = io->in_bytes};
    ZSTD_outBuffer out = {.dst = io->out, .size = io->out_bytes};
    size_t before;
    size_t rc;
    do {
        before = in.pos + out.pos;
        rc = ZSTD_decompressStream(zstd->stream, &out, &in);
        if (ZSTD_isError(rc)) {
            return core_err_set(-EINVAL, "broken zstd data: %s", ZSTD_getErrorName(rc));
        }
    } while (out.pos < out.size && in.pos + out.pos > before && in.pos < in.size);
    zstd->ended = in.pos + out.pos > 0 ? rc == 0 : zstd->ended; /* no bytes moved: unchanged */
    io->in += in.pos;
    io->in_bytes -= in.pos;
    io->out += out.pos;
    io->out_bytes -= out.pos;
    return charge(zstd);
}

static bool zstd_whole(const void *state)
{
    return ((const struct zstd *)state)->ended;
}

const struct text_codec text_codec_zstd = {
    .magic = {0x28, 0xB5, 0x2F, 0xFD},
    .magic_bytes = 4,
    .create = zstd_create,
    .destroy = zstd_destroy,
    .restart = zstd_restart,
    .run = zstd_run,
    .whole = zstd_whole,
};
