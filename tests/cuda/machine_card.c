/* machine_card.c: the real machine and its card. */
#include "tests/kernels/rig.h"

const char *rig_machine(void)
{
    return "cuda";
}

bool rig_machine_is_visible(void)
{
    return false;
}
