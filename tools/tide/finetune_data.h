/* finetune_data.h: the rows of a file as the micro-batches of steps, epoch after epoch. What a step
 * holds depends on the options alone. Main thread; rows are prepared by a thread of the feed's. */
#ifndef TOOLS_TIDE_FINETUNE_DATA_H
#define TOOLS_TIDE_FINETUNE_DATA_H

#include <tide/engine.h>

#include "tools/tide/finetune_counts.h"

struct tune_data;

/* Reads once through the rows that will be trained on: how long the longest is, and, for a run told in
 * epochs, how many there are. Paths are borrowed until close. -EINVAL where a row is wrong or too
 * long, and where there is nothing to train on. */
int tune_data_open(const struct tune_data_options *options, struct tune_data **out);
void tune_data_close(struct tune_data *data);

void tune_data_describe(const struct tune_data *data, struct tune_data_info *out);
/* Bytes that the data takes while the run goes on. */
uint64_t tune_data_memory(const struct tune_data *data);

/* The micro-batches of the next step, borrowed until the next call: up to `step_max` of one epoch.
 * Returns how many, or -errno. After an epoch's last the next one begins. */
int tune_data_step(struct tune_data *data, const struct tide_batch **batches);

/* Tokens of that step, without what only fills rows up. */
int64_t tune_data_tokens(const struct tune_data *data);
/* Seconds in which its rows were waited for; those of the first step after opening do not count. */
double tune_data_wait(const struct tune_data *data);

/* From the first row of the first epoch again. */
int tune_data_rewind(struct tune_data *data);

/* Where in the rows the next step begins: plain bytes, to be stored. */
struct tune_data_place {
    uint64_t word[8];
};
void tune_data_tell(const struct tune_data *data, struct tune_data_place *out);
/* Goes on there. -EINVAL where the file or what is read of it is not the same. */
int tune_data_seek(struct tune_data *data, const struct tune_data_place *place);

/* Steps of `epochs` epochs, each of which ends with a step of its own. */
int64_t tune_data_steps(const struct tune_data_info *info, unsigned step_max, double epochs);

#endif
