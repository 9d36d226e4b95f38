/* emulated_card.c: gives an emulated card to programs that do not ask for one: `tide` and the
 * measurements that tests/cuda/dry_run runs. */
#include <stddef.h>

#include "kernels/table.h"
#include "tests/dev/fake_cuda.h"

static const size_t CARD_BYTES = (size_t)2 << 30;

__attribute__((constructor)) static void card_insert(void)
{
    fake_reset(CARD_BYTES);
    kern_ops_detach(NULL); /* so that the linker takes the ops of the first library */
}
