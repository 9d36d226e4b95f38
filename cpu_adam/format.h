/* format.h: which moments a rule keeps and the bytes of an element. Private to cpu_adam. Any
 * thread. */
#ifndef CPU_ADAM_FORMAT_H
#define CPU_ADAM_FORMAT_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/update_args.h"

bool adam_has_m(enum core_update_rule rule);
bool adam_has_v(enum core_update_rule rule);

/* Returns 4 for fp32, 2 for bf16 and fp16, 1 for 8 bits. */
size_t adam_type_bytes(enum core_update_type type);

#endif
