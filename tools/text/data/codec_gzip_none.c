/* codec_gzip_none.c: replaces codec_gzip.c if tide is built without zlib. */
#include <errno.h>

#include "core/base/err.h"
#include "tools/text/data/codec.h"

static int refuse(void **state)
{
    (void)state;
    return core_err_set(-ENOTSUP,
                        "gzip data needs zlib, and this tide was built without it; unpack "
                        "it first: gunzip -k FILE");
}

const struct text_codec text_codec_gzip = {
    .magic = {0x1F, 0x8B}, .magic_bytes = 2, .create = refuse};
