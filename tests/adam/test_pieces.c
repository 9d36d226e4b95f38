/* Tests that launches for a device, cut where the group changes, give the bits of adam_step(). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "tests/adam/room.h"
#include "tests/harness/test.h"

enum { BEGIN = 512, END = 60001 };

/* Two runs of one group, then an empty run. */
static const struct adam_run runs[] = {
    {1000, 0}, {3000, 0}, {3000, 1}, {40000, 1}, {ROOM_COUNT, 0}};
static const uint64_t borders[] = {3000, 40000, END};

static void set_groups(struct adam_options *options, struct adam_group groups[2])
{
    groups[0] = groups[1] = room_group;
    groups[1].decay = 0;
    groups[1].lr = 3e-3;
    groups[1].step = groups[0].step = 7;
    options->runs = runs;
    options->runs_count = sizeof runs / sizeof runs[0];
    options->groups = groups;
    options->groups_count = 2;
}

struct taken {
    const struct adam_options *options;
    struct adam *alone[2]; /* one group each, over the same array */
    unsigned count;
    uint64_t at;
    unsigned end_after; /* launches until `take` fails; 0: never */
};

/* Runs a launch on the CPU with an optimizer that has only the launch's group. */
static int take(void *context, const struct core_update_args *piece)
{
    struct taken *taken = context;
    const unsigned group = taken->count % 2;
    struct core_update_scalars scalars;
    check_int(adam_scalars(piece->rule, &taken->options->groups[group], 0.5, &scalars), ==, 0);
    check_int(memcmp(&scalars, &piece->scalars, sizeof scalars), ==, 0);
    check_uint(piece->first, ==, taken->at);
    check_uint(piece->first + piece->count, ==, borders[taken->count]);
    check_uint(piece->stream >> 32, ==, 7);
    check_uint(piece->seed, ==, taken->options->seed);
    if (++taken->count == taken->end_after) {
        return -EAGAIN;
    }
    taken->at += piece->count;
    const struct adam_arrays arrays = {.first = piece->first,
                                       .count = piece->count,
                                       .w16 = piece->w16,
                                       .lo16 = piece->lo16,
                                       .w32 = piece->w32,
                                       .g = piece->g,
                                       .m = piece->m,
                                       .v = piece->v,
                                       .m_scale = piece->m_scale,
                                       .v_scale = piece->v_scale};
    return adam_step(taken->alone[group], &arrays, piece->first, piece->first + piece->count, 0.5,
                     NULL);
}

static void pieces_are_the_step(void)
{
    static const enum core_update_type moments[] = {CORE_UPDATE_F32, CORE_UPDATE_BF16};
    for (int i = 0; i < 2; i++) {
        struct room *rooms = calloc(2, sizeof *rooms);
        struct adam_group groups[2];
        struct adam_options options = room_options(moments[i]);
        set_groups(&options, groups);
        struct adam *whole = room_adam(&options);
        struct taken taken = {.options = &options, .at = BEGIN};
        for (int g = 0; g < 2; g++) {
            struct adam_options alone = options;
            alone.runs_count = 0;
            alone.groups = &groups[g];
            alone.groups_count = 1;
            taken.alone[g] = room_adam(&alone);
            room_fill(&rooms[g], &options);
        }
        const struct adam_arrays first = room_arrays(&rooms[0]);
        const struct adam_arrays second = room_arrays(&rooms[1]);
        const struct adam_window window = {
            .arrays = &second, .begin = BEGIN, .end = END, .gradient_scale = 0.5};
        check_int(adam_step(whole, &first, BEGIN, END, 0.5, NULL), ==, 0);
        check_int(adam_pieces(whole, &window, take, &taken), ==, 0);
        check_uint(taken.count, ==, 3);
        check_int(memcmp(&rooms[0], &rooms[1], sizeof rooms[0]), ==, 0);
        adam_destroy(whole);
        adam_destroy(taken.alone[0]);
        adam_destroy(taken.alone[1]);
        free(rooms);
    }
}

/* An error of `take` ends the call; an invalid window is reported before the first launch. */
static void errors_end_it(void)
{
    struct room *room = calloc(1, sizeof *room);
    struct adam_group groups[2];
    struct adam_options options = room_options(CORE_UPDATE_F32);
    set_groups(&options, groups);
    struct adam *adam = room_adam(&options);
    room_fill(room, &options);
    const struct adam_arrays arrays = room_arrays(room);
    struct taken taken = {.options = &options, .at = BEGIN, .end_after = 1};
    struct adam_window window = {
        .arrays = &arrays, .begin = BEGIN, .end = END, .gradient_scale = 0.5};
    check_int(adam_pieces(adam, &window, take, &taken), ==, -EAGAIN);
    check_uint(taken.count, ==, 1);
    window.end = ROOM_COUNT + 1;
    check_int(adam_pieces(adam, &window, take, &taken), ==, -EINVAL);
    check_contains(core_err_message(), "is outside the window");
    check_uint(taken.count, ==, 1);
    adam_destroy(adam);
    free(room);
}

static int count_piece(void *context, const struct core_update_args *piece)
{
    unsigned *count = context;
    *count += piece->count > 0;
    return 0;
}

/* Two groups may not share a block of 8-bit moments. */
static void shared_blocks_are_refused(void)
{
    static const struct adam_run whole[] = {{1024, 0}, {ROOM_COUNT, 1}};
    static const struct adam_run cut[] = {{1000, 0}, {ROOM_COUNT, 1}};
    struct room *room = calloc(1, sizeof *room);
    struct adam_group groups[2];
    struct adam_options options = room_options(CORE_UPDATE_Q8);
    set_groups(&options, groups);
    options.runs = cut;
    options.runs_count = 2;
    struct adam *adam = room_adam(&options);
    room_fill(room, &options);
    const struct adam_arrays arrays = room_arrays(room);
    struct taken taken = {.options = &options};
    const struct adam_window window = {
        .arrays = &arrays, .begin = 0, .end = ROOM_COUNT, .gradient_scale = 0.5};
    check_int(adam_pieces(adam, &window, take, &taken), ==, -ENOTSUP);
    check_contains(core_err_message(), "the block of 8-bit moments around parameter 1000");
    check_uint(taken.count, ==, 0);
    adam_destroy(adam);
    options.runs = whole;
    adam = room_adam(&options);
    unsigned count = 0;
    check_int(adam_pieces(adam, &window, count_piece, &count), ==, 0);
    check_uint(count, ==, 2);
    adam_destroy(adam);
    free(room);
}

TEST_MAIN({"pieces_are_the_step", pieces_are_the_step}, {"errors_end_it", errors_end_it},
          {"shared_blocks_are_refused", shared_blocks_are_refused})
