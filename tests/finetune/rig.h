/* rig.h: runs a command and keeps its output. */
#ifndef TESTS_FINETUNE_RIG_H
#define TESTS_FINETUNE_RIG_H

#include <stdbool.h>
#include <stddef.h>

/* The output of the last run, valid until the next run or rig_end(). */
extern char *rig_out;
extern char *rig_err;

/* Path of the program, absolute or in the build folder. */
extern const char *rig_program;

/* Runs the program with words separated by spaces (%M: the tiny Llama of the fixtures, %T: the
 * test's folder) and `setting` ("NAME=value" or NULL) in its environment. Returns the exit code, or
 * 256 + the signal that ended the program. */
int rig_run(const char *setting, const char *arguments);

/* rig_start() does not wait for the end of the program; rig_wait() does, and returns like
 * rig_run(). */
int rig_start(const char *setting, const char *arguments);
int rig_wait(int child);

/* Starts the program with a pipe as standard input, and returns after the program began to read.
 * The caller closes *rows, the pipe's end for writing. */
int rig_start_reader(const char *arguments, int *rows);

void rig_end(void);

/* The path of a file in the test's folder, valid for eight calls; its text, valid until the next
 * call; and whether it exists. */
const char *rig_path(const char *name);
const char *rig_read(const char *name);
bool rig_has(const char *name);
/* Waits until a file of the test's folder has text. */
void rig_wait_for_text(const char *name);

/* Removes a folder of the test's folder. */
void rig_remove(const char *name);

/* Returns the newest checkpoint after step `before` in a run's folder, or `before`; *inside tells
 * whether there is an unfinished checkpoint. */
int rig_newest(const char *folder, int before, bool *inside);

/* Returns the number of entries in a folder of the test's folder, without hidden ones. */
size_t rig_entries(const char *name);
/* Returns the number `key` in a line of a log, counted from 0; "wait.data" is `data` in the object
 * `wait`. A missing number fails the case. */
double rig_number(const char *log, size_t line, const char *key);
/* Makes the model chat/model, which has the tokenizer of GPT-2. */
void rig_chat_model(void);

/* Writes d.jsonl: seven rows of eight tokens that begin with the row's number. */
void rig_rows(void);

void rig_expect(int line, int code, int wanted);
#define expect(wanted, arguments) rig_expect(__LINE__, rig_run(NULL, arguments), wanted)
#define expect_with(wanted, setting, arguments)                                                    \
    rig_expect(__LINE__, rig_run(setting, arguments), wanted)

/* Prepares runs of tools/tide with the real engine and TRAIN_SMALL. */
void rig_train_begin(void);
/* Makes pairs/model, a tiny Llama with a tokenizer, and the files pairs.jsonl and texts.jsonl. */
void rig_make_pairs(void);
/* Checks that two folders have an equal file, model or adapter. */
void rig_same_file(const char *one, const char *other, const char *name);
void rig_same_model(const char *one, const char *other);
void rig_same_adapter(const char *one, const char *other);

#define TRAIN       "finetune --model %M --data %T/d.jsonl --batch 2 --accum 2 "
#define TRAIN_SMALL TRAIN "--lr 1e-2 --threads 2 --rates %T/rates.json "

#endif
