/* codec_zstd_none.c: replaces codec_zstd.c if tide is built without zstd. */
#include <errno.h>

#include "core/base/err.h"
#include "tools/text/data/codec.h"

static int refuse(void **state)
{
    (void)state;
    return core_err_set(-ENOTSUP, "zstd data needs libzstd, and this tide was built without it; "
                                  "unpack it first: zstd -dk FILE");
}

const struct text_codec text_codec_zstd = {
    .magic = {0x28, 0xB5, 0x2F, 0xFD}, .magic_bytes = 4, .create = refuse};
