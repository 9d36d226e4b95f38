/* machine.c: the machine as it is. */
#include "tests/kernels/rig.h"

const char *rig_machine(void)
{
    return "cpu";
}

bool rig_machine_is_visible(void)
{
    return false; /* the CPU device lays its red zones itself */
}
