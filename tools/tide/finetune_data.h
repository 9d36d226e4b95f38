/* finetune_data.h: the rows of a file as micro-batches of steps, epoch after epoch. The content
 * of a step depends on the options alone. Main thread; the feed prepares rows on a thread of its
 * own. */
#ifndef TOOLS_TIDE_FINETUNE_DATA_H
#define TOOLS_TIDE_FINETUNE_DATA_H

#include <tide/engine.h>

#include "tools/tide/finetune_counts.h"

struct finetune_data;

/* Reads the rows of the run once, to count them and to find the longest, unless an earlier run has
 * kept the counts. Paths are borrowed until close. Returns 0 or -errno with a message; -EINVAL for
 * a bad or too long row, and if there is nothing to train on. */
int finetune_data_open(const struct finetune_data_options *options, struct finetune_data **out);
void finetune_data_close(struct finetune_data *data);

void finetune_data_describe(const struct finetune_data *data, struct finetune_data_info *out);
/* Returns how many bytes of memory the data takes during the run. */
uint64_t finetune_data_memory(const struct finetune_data *data);

/* Sets *batches to the micro-batches of the next step, up to `step_max` of one epoch, borrowed
 * until the next call. Returns their number, or -errno with a message. After the last micro-batch
 * of an epoch, the next epoch begins. */
int finetune_data_step(struct finetune_data *data, const struct tide_batch **batches);

/* Returns the tokens of the last step without padding. */
int64_t finetune_data_tokens(const struct finetune_data *data);
/* Returns how many seconds the last step waited for its rows. The wait for the first micro-batch
 * after opening does not count. */
double finetune_data_wait(const struct finetune_data *data);

/* Continues with the first row of the first epoch. Returns 0, or -errno with a message. */
int finetune_data_rewind(struct finetune_data *data);

/* Writes the position of the next step to *out. */
void finetune_data_tell(const struct finetune_data *data, struct finetune_data_place *out);
/* Continues at this position. Returns 0, or -errno with a message; -EINVAL if the file or the
 * options that select rows have changed. */
int finetune_data_seek(struct finetune_data *data, const struct finetune_data_place *place);

/* Returns the number of steps of `epochs` epochs; a step does not cross epochs. */
int64_t finetune_data_steps(const struct finetune_data_info *info, unsigned step_max,
                            double epochs);

#endif
