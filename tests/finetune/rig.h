/* rig.h: runs a command as a user does, and keeps what it said. */
#ifndef TESTS_FINETUNE_RIG_H
#define TESTS_FINETUNE_RIG_H

#include <stdbool.h>

/* Of the last run; replaced by the next, freed by rig_end(). */
extern char *rig_out;
extern char *rig_err;

/* "tests/finetune/tide_paper", "tools/tide": below the build folder. */
extern const char *rig_program;

/* Runs the program with words that have spaces between them (%M is the tiny Llama of the fixtures,
 * %T the test's directory) and `setting` ("NAME=value", NULL: none) in its environment. Returns the
 * exit code, or 256 + the signal that ended it. */
int rig_run(const char *setting, const char *arguments);

/* Starts it, for who wants to do something meanwhile; then waits for its end. */
int rig_start(const char *setting, const char *arguments);
int rig_wait(int child);

/* Frees what was said. */
void rig_end(void);

/* A path in the test's directory; the text of a file in it; is it there? Valid for a few calls. */
const char *rig_path(const char *name);
const char *rig_read(const char *name);
bool rig_has(const char *name);

/* A folder there, with all that is in it. */
void rig_remove(const char *name);

/* d.jsonl: seven rows of eight tokens, whose first is the row's number. */
void rig_rows(void);

void rig_expect(int line, int code, int wanted);
#define expect(wanted, arguments) rig_expect(__LINE__, rig_run(NULL, arguments), wanted)
#define expect_with(wanted, setting, arguments)                                                    \
    rig_expect(__LINE__, rig_run(setting, arguments), wanted)

/* For runs of tools/tide with its real engine: rows, a folder `store`, and rates, measured once, that
 * TRAIN_SMALL plans with. */
void rig_train_begin(void);
/* Two outputs hold the same model, byte for byte. */
void rig_same_model(const char *one, const char *other);

#define TRAIN       "finetune --model %M --data %T/d.jsonl --batch 2 --accum 2 "
#define TRAIN_SMALL TRAIN "--lr 1e-2 --threads 2 --rates %T/rates.json "

#endif
