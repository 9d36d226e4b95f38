/* body.h: the inner loops of one variant, whose .c file chooses the vector header, includes this
 * file and fills the table. Formulas: docs/optimizers.md. */
#ifndef CPU_ADAM_BODY_H
#define CPU_ADAM_BODY_H

#include "cpu_adam/body_q8.h"
#include "cpu_adam/body_squares.h"
#include "cpu_adam/body_update.h"

__attribute__((unused)) static void fill(struct adam_ops *ops, const char *name)
{
    *ops = (struct adam_ops){
        .name = name,
        .update = {[CORE_UPDATE_ADAM] = update_adam,
                   [CORE_UPDATE_ADAMW] = update_adamw,
                   [CORE_UPDATE_LION] = update_lion,
                   [CORE_UPDATE_ADAGRAD] = update_adagrad,
                   [CORE_UPDATE_SGD] = update_sgd},
        .q8_decode = q8_decode,
        .q8_encode = q8_encode,
        .squares = squares,
    };
}

#endif
