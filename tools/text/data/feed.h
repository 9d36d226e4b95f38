/* feed.h: training data: from files of rows to micro-batches, prepared ahead by a thread of its own.
 *
 *     struct text_feed *feed = NULL;
 *     struct text_batch batch;
 *     rc = text_feed_open(&options, NULL, &feed);
 *     while ((rc = text_feed_next(feed, &batch)) == 1) {
 *         step(&batch);
 *         saved = batch.after;      // 64 bytes: open with them to go on behind this batch
 *     }
 *     text_feed_close(feed);
 *
 * Rows are told by their keys: `input_ids` (and `labels`) need no tokenizer and no model folder.
 * What a batch holds depends on the options and the files alone, never on timing or threads.
 * One thread, the caller's. */
#ifndef TOOLS_TEXT_DATA_FEED_H
#define TOOLS_TEXT_DATA_FEED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/budget.h"

struct text_feed;

enum { TEXT_AHEAD_MAX = 1024, TEXT_THREADS_MAX = 64 };

enum text_train_on {
    TEXT_TRAIN_COMPLETION, /* the assistant's turns of chats, completions of prompts, all of texts */
    TEXT_TRAIN_ALL,        /* every token of every row */
};

enum text_on_bad_row {
    TEXT_BAD_STOP, /* fail with an error that names file, row and key */
    TEXT_BAD_SKIP, /* warn, count the row and continue */
};

/* What a feed may take and took. A row's way from JSON to tokens has a limit, so that one row cannot take
 * all of the machine; everything else has sizes of its own and is counted. Rows that need little are made by
 * all threads at once, in buffers that stay; what needs more is made again alone, from empty buffers, so
 * that which rows are refused depends on the rows alone. The caller's memory; outlives the feed. */
struct text_memory {
    uint64_t row_bytes;                         /* the limit of one row */
    uint64_t line_bytes;                        /* of its text, besides */
    struct core_budget shared;                  /* files, tokenizer, windows, batches */
    struct core_budget large;                   /* a row that needs much */
    struct core_budget small[TEXT_THREADS_MAX]; /* of each thread: rows that need little */
};

/* `row_bytes` 0: half of what this process may use, at most 1 GiB. */
void text_memory_init(struct text_memory *memory, uint64_t row_bytes);
/* What a feed of one thread takes for the rows that feeds with this memory have read. */
uint64_t text_memory_peak(const struct text_memory *memory);
/* The same of the largest row alone: a limit under which the same rows are read. */
uint64_t text_memory_row(const struct text_memory *memory);

/* Zero is the default of each but the first six. */
struct text_feed_options {
    const char *const *files; /* paths, patterns, "-" for standard input; .gz and .zst as well */
    size_t files_count;
    int64_t seq_len;    /* most tokens of a row; longer rows are cut, and counted */
    int64_t batch_rows; /* of a micro-batch of one rank */
    const char
        *model;    /* folder with tokenizer.json and the chat template; NULL: rows of ids only */
    int64_t vocab; /* of the model: ids lie below it; 0: not checked */
    const char
        *chat_format; /* chatml, llama3, llama2, mistral, alpaca, vicuna; NULL: the model's */
    enum text_train_on train_on;
    enum text_on_bad_row on_bad_row;
    bool pack;    /* several documents in a row, each with its own attention and positions */
    bool split;   /* rows longer than seq_len continue in further rows instead of being cut */
    bool quiet;   /* no warnings: the same files were read with these options before */
    bool shuffle; /* no: file order */
    int64_t
        now; /* the time that chat templates are given (strftime_now), as a local clock shows it,
                     in seconds since 1970: text_feed_now(). Part of what a run's rows depend on */
    uint64_t seed;
    struct text_memory
        *memory;     /* borrowed; NULL: rows have TEXT_ROW_BYTES_MAX, nothing is counted */
    int input;       /* what "-" means: a descriptor of text_spool_input(), with which it can be
                                read again; 0: standard input itself */
    uint64_t epochs; /* then text_feed_next() ends; 0: for ever */
    int64_t length_multiple; /* rows are padded to a multiple, at most seq_len; seq_len itself: all
                                batches have one shape; 0: to the longest row of the batch */
    int64_t
        length_room; /* no row will be longer than this: memory for so many tokens; 0: seq_len */
    unsigned ranks;  /* that share the rows; 0: 1 */
    unsigned rank;
    unsigned ahead;   /* batches prepared ahead; 0: 4, at most TEXT_AHEAD_MAX */
    unsigned threads; /* that make tokens of rows; 0: 1, the one that prepares batches */
};

/* Where a run stands in its data: plain numbers without pointers, to be stored as they are (in the
 * machine's byte order). All zero is the beginning. Does not depend on batch_rows and ranks. */
struct text_position {
    uint64_t word[8]; /* mark of data and options; epoch; place (3); rows since; batches;
                         version of all that */
};

/* Counts since the position that the feed was opened with. */
struct text_counts {
    uint64_t rows;       /* of the files */
    uint64_t bad;        /* skipped */
    uint64_t cut;        /* longer than seq_len, with their end dropped */
    uint64_t cut_tokens; /* dropped with it */
    uint64_t split;      /* longer than seq_len, and continued in further rows */
    uint64_t untrained;  /* dropped because all their trained tokens were cut off */
    uint64_t documents;  /* in batches */
    uint64_t tokens;     /* in batches, without padding */
    uint64_t targets;    /* of these, trained on */
    uint64_t dated;      /* 1: rows went through a chat template that asks for the time */
};

/* Borrowed from the feed until the next call. The arrays are [batch_rows][length]. */
struct text_batch {
    int64_t rows;   /* that hold data; the others, up to batch_rows, are padding altogether */
    int64_t length; /* of each row, padding included */
    const int32_t *ids;
    const int32_t *labels;    /* unshifted: the token itself, or -100 where it is not trained on */
    const int32_t *positions; /* in the document; NULL unless packed */
    const int32_t *starts;    /* where in the row the token's document begins; NULL unless packed */
    int64_t tokens;           /* of this rank's rows without padding */
    int64_t targets;          /* labels that are predicted: not -100 and not a document's first */
    int64_t targets_all;      /* the same of all ranks: what the step's loss is divided by */
    uint64_t epoch;           /* from 0 */
    double part;              /* of its bytes that were read, 0 to 1; negative: not known */
    struct text_counts counts;
    struct text_position after;
};

/* Opens the files and begins to prepare; `from` NULL: the beginning. Texts and lists of the options
 * are borrowed until close. -EINVAL for options that
 * contradict each other and for a position of other data; -ENOENT, -ENOTSUP ... */
int text_feed_open(const struct text_feed_options *options, const struct text_position *from,
                   struct text_feed **out);
void text_feed_close(struct text_feed *feed);

/* 1 and the next batch; 0 after the last epoch, with the counts of all of it; -errno, with the sentence, for a row that is wrong
 * (with TEXT_BAD_STOP), for a file that cannot be read, and for an epoch with nothing to train on.
 * What failed stays failed. */
int text_feed_next(struct text_feed *feed, struct text_batch *out);

/* The time for `now` where a run begins: SOURCE_DATE_EPOCH (UTC), or else this machine's local time.
 * -EINVAL for a SOURCE_DATE_EPOCH that is no number of seconds. */
int text_feed_now(int64_t *out);

/* How long text_feed_next() has waited in all, but for the first batch. */
int64_t text_feed_wait_ns(const struct text_feed *feed);

/* How many threads tokenize where nothing else has to be done meanwhile: as many as were asked for (0:
 * one a processor that this thread may run on), at most TEXT_THREADS_MAX. */
unsigned text_feed_threads(int64_t asked);

/* One epoch, read through once without keeping it: how many batches it has, for schedules that are
 * told in epochs. */
struct text_measure {
    uint64_t batches; /* of one rank */
    uint64_t rows;    /* packed, where they are */
    struct text_counts counts;
};
int text_feed_measure(const struct text_feed_options *options, struct text_measure *out);

#endif
