/* drive_sums.c: the checksums of a block: taken right before its bytes leave, checked when they have
 * come. Drive's thread. */
#include "aio/drive_internal.h"
#include "core/base/hash.h"

void aio_sums_take(struct aio_drive *drive, const struct block *block)
{
    const struct part *part = aio_part_of(block);
    for (uint32_t at = 0; at < block->bytes; at += AIO_SUM_BYTES) {
        uint32_t bytes = block->bytes - at < AIO_SUM_BYTES ? block->bytes - at : AIO_SUM_BYTES;
        uint64_t index = (block->within + at) / AIO_SUM_BYTES;
        struct aio_sum *sum = &part->sums.table[index];
        sum->generation++;
        sum->value = core_hash(part->memory + block->within + at, bytes,
                               aio_sum_seed(&part->sums, index, sum->generation));
    }
    count(&drive->hashed_bytes, block->bytes);
}

int64_t aio_sums_check(struct aio_drive *drive, const struct block *block, uint64_t *found)
{
    const struct part *part = aio_part_of(block);
    count(&drive->hashed_bytes, block->bytes);
    for (uint32_t at = 0; at < block->bytes; at += AIO_SUM_BYTES) {
        uint32_t bytes = block->bytes - at < AIO_SUM_BYTES ? block->bytes - at : AIO_SUM_BYTES;
        uint64_t index = (block->within + at) / AIO_SUM_BYTES;
        const struct aio_sum *sum = &part->sums.table[index];
        *found = core_hash(part->memory + block->within + at, bytes,
                           aio_sum_seed(&part->sums, index, sum->generation));
        if (*found != sum->value || sum->generation == 0) {
            return (int64_t)index;
        }
    }
    return NONE;
}
