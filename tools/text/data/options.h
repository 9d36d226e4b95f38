/* options.h: options and counts of all stages from files to batches. Plain structs in the caller's
 * memory. */
#ifndef TOOLS_TEXT_DATA_OPTIONS_H
#define TOOLS_TEXT_DATA_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text_memory;

enum { TEXT_AHEAD_MAX = 1024 };

enum text_train_on {
    /* replies in chats, completions of prompts, whole texts */
    TEXT_TRAIN_COMPLETION,
    TEXT_TRAIN_ALL,
};

enum text_on_bad_row {
    TEXT_BAD_STOP, /* fail, naming file, row and key */
    TEXT_BAD_SKIP, /* warn and count */
};

/* Zero is the default of each member except the first four. */
struct text_feed_options {
    const char *const *files; /* paths, patterns, "-" for standard input; .gz and .zst, too */
    size_t files_count;
    int64_t seq_len;    /* tokens of a row at most; longer rows are cut */
    int64_t batch_rows; /* rows of a micro-batch of one rank; a pair counts as two */
    /* folder with tokenizer.json and the chat template; NULL: rows of ids only */
    const char *model;
    int64_t vocab; /* vocabulary size of the model; 0: ids are not checked */
    /* chatml, llama3, llama2, mistral, alpaca, vicuna; NULL: the template of the model */
    const char *chat_format;
    enum text_train_on train_on;
    enum text_on_bad_row on_bad_row;
    bool pack;  /* several documents in a row, without attention between them */
    bool split; /* rows longer than seq_len continue in further rows */
    /* every row of the files has "chosen" and "rejected" and becomes two neighbouring rows
     * of a batch. Excludes pack, split and TEXT_TRAIN_ALL. */
    bool pairs;
    bool quiet;   /* no warnings: they were given before */
    bool shuffle; /* false: in the order of the files */
    /* time for strftime_now of chat templates: local time in seconds since 1970 (text_feed_now) */
    int64_t now;
    uint64_t seed;
    /* borrowed; NULL: TEXT_ROW_BYTES_MAX limits rows, and nothing is counted */
    struct text_memory *memory;
    /* meaning of "-": a descriptor of text_spool_input(); 0: standard input */
    int input;
    uint64_t epochs; /* 0: endless */
    /* rows are padded to a multiple of this, at most seq_len; seq_len: one shape for all batches;
     * 0: to the longest row */
    int64_t length_multiple;
    int64_t length_room; /* tokens of the longest row; 0: seq_len */
    unsigned ranks;      /* ranks that share the rows; 0: 1 */
    unsigned rank;
    unsigned ahead;   /* batches prepared ahead; 0: 4; at most TEXT_AHEAD_MAX */
    unsigned threads; /* tokenizing threads; 0: 1, the one that prepares batches */
};

/* Counts since the position that the feed was opened with. */
struct text_counts {
    uint64_t rows;       /* rows of the files; a pair is one */
    uint64_t bad;        /* bad rows that were skipped */
    uint64_t cut;        /* rows cut to seq_len; a pair is one */
    uint64_t cut_tokens; /* tokens cut off */
    uint64_t split;      /* rows split at seq_len */
    uint64_t untrained; /* rows, or parts of split rows, dropped because no trained token is left */
    uint64_t equal;     /* pairs whose answers are equal; they are kept */
    uint64_t documents; /* in batches; two of each pair */
    uint64_t tokens;    /* in batches, without padding */
    uint64_t targets;   /* trained tokens; with `pairs`, pairs */
    uint64_t dated;     /* 1: rows may contain the time, by the chat template */
};

#endif
