/* machine.c: the rig on the real machine. */
#include "tests/kernels/rig.h"

const char *rig_machine(void)
{
    return "cpu";
}

bool rig_machine_is_visible(void)
{
    return false; /* the CPU device adds its red zones itself */
}
