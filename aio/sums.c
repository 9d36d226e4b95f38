/* sums.c: computes and compares checksums, one unit at a time. */
#include "aio/sums.h"

#include "core/base/hash.h"

uint32_t aio_sums_unit(const struct aio_sums *sums)
{
    return sums->pages ? AIO_SUM_PAGE_BYTES : AIO_SUM_BYTES;
}

uint64_t aio_sum_seed(const struct aio_sums *sums, uint64_t index, uint64_t generation)
{
    return core_hash_seed(sums->run, sums->owner, sums->first + index, generation);
}

void aio_sums_compute(const struct aio_sums *sums, uint64_t offset, const unsigned char *memory,
                      uint32_t bytes)
{
    const uint32_t unit = aio_sums_unit(sums);
    for (uint32_t at = 0; at < bytes; at += unit) {
        const uint32_t length = bytes - at < unit ? bytes - at : unit;
        const uint64_t index = (offset + at) / unit;
        struct aio_sum *sum = &sums->table[index];
        sum->generation++;
        sum->value = core_hash(memory + at, length, aio_sum_seed(sums, index, sum->generation));
    }
}

int64_t aio_sums_verify(const struct aio_sums *sums, uint64_t offset, const unsigned char *memory,
                        uint32_t bytes, uint64_t *found)
{
    const uint32_t unit = aio_sums_unit(sums);
    for (uint32_t at = 0; at < bytes; at += unit) {
        const uint32_t length = bytes - at < unit ? bytes - at : unit;
        const uint64_t index = (offset + at) / unit;
        const struct aio_sum *sum = &sums->table[index];
        *found = core_hash(memory + at, length, aio_sum_seed(sums, index, sum->generation));
        if (*found != sum->value || sum->generation == 0) {
            return (int64_t)index;
        }
    }
    return -1;
}
