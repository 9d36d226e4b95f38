/* rig.h: runs a command as a user does, and keeps its output. */
#ifndef TESTS_FINETUNE_RIG_H
#define TESTS_FINETUNE_RIG_H

#include <stdbool.h>
#include <stddef.h>

/* The output of the last run; the next run replaces it, and rig_end() frees it. */
extern char *rig_out;
extern char *rig_err;

/* Path of the program, absolute or in the build folder: "tests/finetune/tide_paper",
 * "tools/tide". */
extern const char *rig_program;

/* Runs the program with words separated by spaces (%M is the tiny Llama of the fixtures, %T the
 * folder of the test) and `setting` ("NAME=value", NULL: none) in its environment. Returns the exit
 * code, or 256 + the signal that ended it. */
int rig_run(const char *setting, const char *arguments);

/* rig_start() returns while the program runs, so that the test can act meanwhile. rig_wait() waits
 * for its end and returns like rig_run(). */
int rig_start(const char *setting, const char *arguments);
int rig_wait(int child);

/* Starts the program with a pipe as standard input, and writes more bytes than the pipe holds, so
 * it returns after the program has begun to read. *rows is the pipe's end for writing; the caller
 * closes it. */
int rig_start_reader(const char *arguments, int *rows);

/* Frees the output. */
void rig_end(void);

/* The path of a file in the test's folder, valid for eight calls; its text, valid until the next
 * call; and whether it exists. */
const char *rig_path(const char *name);
const char *rig_read(const char *name);
bool rig_has(const char *name);
/* Waits until a file of the test's folder has text, which a started run writes. */
void rig_wait_for_text(const char *name);

/* Removes a folder of the test's folder and everything in it. */
void rig_remove(const char *name);

/* Returns the newest checkpoint after step `before` in a run's folder, or `before`. Sets *inside to
 * whether a checkpoint is being written. */
int rig_newest(const char *folder, int before, bool *inside);

/* Returns the number of entries in a folder of the test's folder, hidden ones not counted. */
size_t rig_entries(const char *name);
/* Returns the number `key` in a line of a log; lines count from 0. "wait.data" is the member `data`
 * of the object `wait`. A line without the number fails the case. */
double rig_number(const char *log, size_t line, const char *key);
/* Makes the model chat/model, which has the tokenizer of GPT-2. */
void rig_chat_model(void);

/* Writes d.jsonl: seven rows of eight tokens; the first token is the number of the row. */
void rig_rows(void);

void rig_expect(int line, int code, int wanted);
#define expect(wanted, arguments) rig_expect(__LINE__, rig_run(NULL, arguments), wanted)
#define expect_with(wanted, setting, arguments)                                                    \
    rig_expect(__LINE__, rig_run(setting, arguments), wanted)

/* Prepares runs of tools/tide with the real engine: rows, a folder `store`, and measured rates for
 * plans of TRAIN_SMALL. */
void rig_train_begin(void);
/* Makes pairs/model, a tiny Llama with a tokenizer that reads any text, and the files pairs.jsonl
 * and texts.jsonl. */
void rig_make_pairs(void);
/* Checks that two folders have the same file, byte for byte, or the same model or adapters. */
void rig_same_file(const char *one, const char *other, const char *name);
void rig_same_model(const char *one, const char *other);
void rig_same_adapter(const char *one, const char *other);

#define TRAIN       "finetune --model %M --data %T/d.jsonl --batch 2 --accum 2 "
#define TRAIN_SMALL TRAIN "--lr 1e-2 --threads 2 --rates %T/rates.json "

#endif
