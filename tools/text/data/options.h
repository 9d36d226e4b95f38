/* options.h: which rows are read and how, for all stages from files to batches; and the counts of
 * the stages. Plain structs in the caller's memory. */
#ifndef TOOLS_TEXT_DATA_OPTIONS_H
#define TOOLS_TEXT_DATA_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text_memory;

enum { TEXT_AHEAD_MAX = 1024 };

enum text_train_on {
    /* replies of the assistant in chats, completions of prompts, whole texts */
    TEXT_TRAIN_COMPLETION,
    TEXT_TRAIN_ALL, /* every token of every row */
};

enum text_on_bad_row {
    TEXT_BAD_STOP, /* fail with an error that names file, row and key */
    TEXT_BAD_SKIP, /* warn, count the row and continue */
};

/* Zero is the default of each member except the first four. */
struct text_feed_options {
    const char *const *files; /* paths, patterns, "-" for standard input; also .gz and .zst files */
    size_t files_count;
    int64_t seq_len;    /* maximum number of tokens per row; longer rows are cut and counted */
    int64_t batch_rows; /* rows of a micro-batch of one rank; with `pairs`, two for each pair */
    /* folder with tokenizer.json and the chat template; NULL: rows of ids only */
    const char *model;
    int64_t vocab; /* vocabulary of the model: ids are below it; 0: not checked */
    /* chatml, llama3, llama2, mistral, alpaca, vicuna; NULL: the template of the model */
    const char *chat_format;
    enum text_train_on train_on;
    enum text_on_bad_row on_bad_row;
    bool pack;  /* several documents in a row, each with its own attention and positions */
    bool split; /* rows longer than seq_len continue in further rows instead of being cut */
    /* every row of the files is a pair of answers: {"prompt", "chosen", "rejected"}. A pair becomes
     * two rows of a batch, which are neighbours. Excludes pack, split and TEXT_TRAIN_ALL. */
    bool pairs;
    bool quiet;   /* no warnings: the same files were read with these options before */
    bool shuffle; /* false: in the order of the files */
    /* Time for strftime_now of chat templates: local time in seconds since 1970 (text_feed_now).
     * The rows of a run may depend on it. */
    int64_t now;
    uint64_t seed;
    /* borrowed; NULL: rows are limited to TEXT_ROW_BYTES_MAX, nothing is counted */
    struct text_memory *memory;
    /* meaning of "-": a descriptor of text_spool_input(), which can be read again; 0: standard
     * input itself */
    int input;
    uint64_t epochs; /* epochs until text_feed_next() ends; 0: endless */
    /* rows are padded to a multiple of this, at most seq_len; seq_len: all batches have the same
     * shape; 0: to the longest row of the batch */
    int64_t length_multiple;
    int64_t length_room; /* tokens of the longest row, if known; 0: seq_len */
    unsigned ranks;      /* ranks that share the rows; 0: 1 */
    unsigned rank;
    unsigned ahead;   /* batches prepared ahead; 0: 4, at most TEXT_AHEAD_MAX */
    unsigned threads; /* tokenizing threads; 0: 1, the one that prepares batches */
};

/* Counts since the position that the feed was opened with. */
struct text_counts {
    uint64_t rows;       /* rows of the files, each of which may be a pair */
    uint64_t bad;        /* bad rows that were skipped */
    uint64_t cut;        /* rows cut to seq_len; a pair counts once */
    uint64_t cut_tokens; /* tokens cut off */
    uint64_t split;      /* rows split because they were longer than seq_len */
    uint64_t untrained;  /* dropped rows, or parts of split rows, that have no trained token left */
    uint64_t equal;      /* pairs whose two rows have the same tokens, which are kept */
    uint64_t documents;  /* in batches; two for each pair */
    uint64_t tokens;     /* in batches, without padding */
    uint64_t targets;    /* number of tokens that are trained on; with `pairs`, number of pairs */
    uint64_t dated;      /* 1: rows used a chat template that writes the time */
};

#endif
