/* finetune_data.h: the rows of a file as micro-batches of steps, epoch after epoch; their order
 * does not depend on timing. Main thread; the feed has its own threads. */
#ifndef TOOLS_TIDE_FINETUNE_DATA_H
#define TOOLS_TIDE_FINETUNE_DATA_H

#include <tide/engine.h>

#include "tools/tide/finetune_counts.h"

struct finetune_data;

/* Counts the rows and finds the longest, unless an earlier run has kept the counts. Borrows the
 * strings of the options until close. */
int finetune_data_open(const struct finetune_data_options *options, struct finetune_data **out);
void finetune_data_close(struct finetune_data *data);

void finetune_data_describe(const struct finetune_data *data, struct finetune_data_info *out);
/* Returns the bytes that the data takes during the run. */
uint64_t finetune_data_memory(const struct finetune_data *data);

/* Sets *batches to the micro-batches of the next step, up to `step_max` of one epoch, borrowed
 * until the next call. Returns their number or -errno. After the last micro-batch of an epoch, the
 * next epoch begins. */
int finetune_data_step(struct finetune_data *data, const struct tide_batch **batches);

/* Returns the tokens of the last step without padding. */
int64_t finetune_data_tokens(const struct finetune_data *data);
/* Returns the seconds that the last step waited for its rows, the first micro-batch after opening
 * excluded. */
double finetune_data_wait(const struct finetune_data *data);

/* Continues with the first row of the first epoch. */
int finetune_data_rewind(struct finetune_data *data);

/* Writes the position of the next step. */
void finetune_data_tell(const struct finetune_data *data, struct finetune_data_place *out);
/* Continues at a position; refuses one of other files or other options of rows. */
int finetune_data_seek(struct finetune_data *data, const struct finetune_data_place *place);

/* Returns the number of steps of `epochs` epochs; a step does not cross epochs. */
int64_t finetune_data_steps(const struct finetune_data_info *info, unsigned step_max,
                            double epochs);

#endif
