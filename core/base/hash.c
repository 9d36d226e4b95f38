/* hash.c: the wrapper of xxhash. */
#include "core/base/hash.h"

#include <xxhash.h>

#include "core/base/cpus.h"

/* Calls the library's baseline variant, because it is compiled before the next include. */
static uint64_t hash_plain(const void *data, size_t bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, bytes, seed);
}

#if HAVE_XXH_DISPATCH
/* with this header, XXH3_64bits_withSeed picks its variant by CPU */
#include <xxh_x86dispatch.h>
#endif

uint64_t core_hash(const void *data, size_t bytes, uint64_t seed)
{
    /* The library ignores TIDE_ISA; its variants return the same number. */
    return core_cpu_flags_limited() ? hash_plain(data, bytes, seed)
                                    : XXH3_64bits_withSeed(data, bytes, seed);
}

uint64_t core_hash_seed(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    const uint64_t words[4] = {a, b, c, d};
    return core_hash(words, sizeof words, 0);
}
