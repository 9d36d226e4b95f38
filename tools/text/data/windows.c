/* windows.c: two windows: one is used while the other is filled. */
#include "tools/text/data/windows.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/charge.h"
#include "core/base/err.h"

struct window {
    struct text_pack *pack; /* owned */
    struct text_place place;
    struct text_place after;
    uint64_t rows; /* rows of the files up to its end */
    uint64_t bad;
    bool dated;
    double part;
    bool begun;
    bool full;
    bool last;
    int rc; /* error of filling it */
    char message[CORE_ERR_MESSAGE_BYTES];
};

struct text_windows {
    const struct text_feed_options *options; /* borrowed */
    struct text_reader *reader;              /* owned */
    struct window windows[2];
    unsigned used;
    bool ended;     /* the current window is the last one of its epoch */
    bool turns;     /* the next window is the first one of its epoch */
    uint64_t epoch; /* epoch being read */
    struct text_counts counts;
};

int text_windows_open(const struct text_feed_options *options, struct text_windows **out)
{
    struct text_windows *windows = core_charge_zeroed(1, sizeof *windows);
    if (windows == NULL) {
        return core_err_set(-ENOMEM, "no memory to feed data");
    }
    const struct text_pack_options pack = {
        .seq_len = options->seq_len, .pack = options->pack, .split = options->split};
    windows->options = options;
    int rc = text_reader_open(options, &windows->reader);
    for (size_t i = 0; i < 2 && rc == 0; i++) {
        rc = text_pack_create(&pack, &windows->windows[i].pack);
    }
    if (rc != 0) {
        text_windows_close(windows);
        return rc;
    }
    *out = windows;
    return 0;
}

void text_windows_close(struct text_windows *windows)
{
    if (windows != NULL) {
        text_reader_close(windows->reader);
        text_pack_destroy(windows->windows[0].pack);
        text_pack_destroy(windows->windows[1].pack);
        core_charge_free(windows);
    }
}

uint64_t text_windows_mark(const struct text_windows *windows)
{
    return text_reader_mark(windows->reader);
}

int text_windows_seek(struct text_windows *windows, uint64_t epoch, struct text_place place)
{
    for (size_t i = 0; i < 2; i++) {
        text_pack_clear(windows->windows[i].pack);
        windows->windows[i].begun = windows->windows[i].full = false;
    }
    windows->ended = windows->turns = false;
    windows->epoch = epoch;
    return text_reader_seek(windows->reader, epoch, place);
}

static int begin_window(struct text_windows *windows, struct window *window)
{
    int rc = 0;
    if (windows->turns) {
        windows->turns = false;
        windows->epoch++;
        rc = text_reader_seek(windows->reader, windows->epoch, (struct text_place){0});
    }
    text_pack_clear(window->pack);
    window->place = text_reader_place(windows->reader);
    window->last = false;
    window->begun = true;
    return rc;
}

static void add_row(struct text_windows *windows, struct window *window)
{
    int rc = window->begun ? 0 : begin_window(windows, window);
    if (rc == 0) {
        rc = text_pack_add(window->pack, windows->reader);
    }
    if (rc == 1 && !text_pack_is_full(window->pack)) {
        return;
    }
    window->full = true;
    window->last = rc == 0;
    window->rc = rc < 0 ? rc : 0;
    if (rc < 0) {
        snprintf(window->message, sizeof window->message, "%s", core_err_message());
        return;
    }
    text_pack_arrange(window->pack);
    window->after = text_reader_place(windows->reader);
    window->part = text_reader_part(windows->reader);
    window->rows = text_reader_rows(windows->reader);
    window->bad = text_reader_bad(windows->reader);
    window->dated = text_reader_dated(windows->reader);
}

/* Nothing is read after the last epoch. */
static bool is_wanted(const struct text_windows *windows)
{
    return !windows->turns || windows->options->epochs == 0 ||
           windows->epoch + 1 < windows->options->epochs;
}

bool text_windows_ahead(struct text_windows *windows)
{
    struct window *window = &windows->windows[1 - windows->used];
    if (window->full || !is_wanted(windows)) {
        return false;
    }
    add_row(windows, window);
    return true;
}

/* No window is partly filled now. */
static void sum_counts(struct text_windows *windows)
{
    struct text_counts sums[2] = {{0}, {0}};
    const struct window *window = &windows->windows[windows->used];
    text_pack_count(windows->windows[0].pack, &sums[0]);
    text_pack_count(windows->windows[1].pack, &sums[1]);
    windows->counts = (struct text_counts){.rows = window->rows,
                                           .bad = window->bad,
                                           .dated = window->dated,
                                           .cut = sums[0].cut + sums[1].cut,
                                           .cut_tokens = sums[0].cut_tokens + sums[1].cut_tokens,
                                           .split = sums[0].split + sums[1].split,
                                           .untrained = sums[0].untrained + sums[1].untrained,
                                           .equal = sums[0].equal + sums[1].equal};
}

int text_windows_next(struct text_windows *windows)
{
    struct window *window = &windows->windows[1 - windows->used];
    if (windows->ended) {
        return 0;
    }
    while (!window->full) {
        add_row(windows, window);
    }
    if (window->rc != 0) {
        return core_err_adopt(window->rc, window->message);
    }
    windows->windows[windows->used].begun = windows->windows[windows->used].full = false;
    windows->used = 1 - windows->used;
    windows->turns = windows->ended = window->last;
    sum_counts(windows);
    return text_pack_rows(window->pack) > 0;
}

void text_windows_turn(struct text_windows *windows)
{
    windows->ended = false;
}

const struct text_pack *text_windows_rows(const struct text_windows *windows)
{
    return windows->windows[windows->used].pack;
}

struct text_place text_windows_place(const struct text_windows *windows)
{
    return windows->windows[windows->used].place;
}

struct text_place text_windows_after(const struct text_windows *windows)
{
    return windows->windows[windows->used].after;
}

double text_windows_part(const struct text_windows *windows)
{
    return windows->windows[windows->used].part;
}

void text_windows_count(const struct text_windows *windows, struct text_counts *counts)
{
    counts->rows = windows->counts.rows;
    counts->bad = windows->counts.bad;
    counts->dated = windows->counts.dated;
    counts->cut = windows->counts.cut;
    counts->cut_tokens = windows->counts.cut_tokens;
    counts->split = windows->counts.split;
    counts->untrained = windows->counts.untrained;
    counts->equal = windows->counts.equal;
}
