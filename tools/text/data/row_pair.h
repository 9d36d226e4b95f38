/* row_pair.h: the two answers of a row of pairs, and the prompt before them. Private to row.c. */
#ifndef TOOLS_TEXT_DATA_ROW_PAIR_H
#define TOOLS_TEXT_DATA_ROW_PAIR_H

struct core_json_value;
struct text_row;

/* NULL: the row lacks the key. */
struct text_row_pair {
    const struct core_json_value *prompt; /* NULL: both answers begin with it */
    const struct core_json_value *chosen;
    const struct core_json_value *rejected;
    const struct core_json_value *system;
};

/* Sets the kind of `row`, its prompt and its answers. Messages name the wrong key. The caller
 * frees the documents of `row`, even after an error. */
int text_row_pair_read(struct text_row *row, const struct text_row_pair *pair);

#endif
