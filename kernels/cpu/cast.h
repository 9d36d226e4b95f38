/* cast.h: the CPU side of KERN_CAST. */
#ifndef KERNELS_CPU_CAST_H
#define KERNELS_CPU_CAST_H

#include "core/base/vec.h"
#include "core/dev/launch.h"

int kern_cpu_cast(const struct dev_launch *where, const struct core_vec_cast *a);

#endif
