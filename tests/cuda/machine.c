/* machine.c: a machine with one emulated card. */
#include "tests/dev/fake_cuda.h"
#include "tests/kernels/rig.h"

const char *rig_machine(void)
{
    fake_reset((size_t)4 << 30);
    return "cuda";
}

bool rig_machine_is_visible(void)
{
    return true;
}
