/* Tests failing allocations of an optimizer, and that nothing is allocated after its creation. */
#include <errno.h>
#include <stdlib.h>

#include "cpu_adam/adam.h"
#include "tests/adam/room.h"
#include "tests/harness/fail_alloc.h"
#include "tests/harness/test.h"

static struct room room;
static enum core_update_type moments;
static unsigned steps;
static bool with_team;

/* Takes `steps` steps, in two ranges each. */
static int life(void)
{
    static float state[1024];
    const struct adam_run runs[] = {{1000, 0}, {1010, 1}, {ROOM_COUNT, 0}};
    const struct adam_group groups[] = {room_group, room_group};
    struct adam_options options = room_options(moments);
    struct adam_arrays arrays = room_arrays(&room);
    struct core_team *team = NULL;
    struct adam *adam = NULL;
    options.runs = runs;
    options.runs_count = 3;
    options.groups = groups;
    options.groups_count = 2;
    const struct core_team_options two = {.count = 2};
    int rc = with_team ? core_team_create(&two, &team) : 0;
    options.team = team;
    rc = rc == 0 ? adam_create(&options, &adam) : rc;
    for (unsigned step = 0; rc == 0 && step < steps; step++) {
        struct adam_group group = room_group;
        group.step = step + 1;
        rc = adam_group_set(adam, 0, &group);
        rc = rc == 0 ? adam_step(adam, &arrays, 0, 40192, 1.0, NULL) : rc;
        rc = rc == 0 ? adam_step(adam, &arrays, 40192, ROOM_COUNT, 1.0, NULL) : rc;
        rc = rc == 0 ? adam_state_write(adam, &arrays, ADAM_VALUE_M, 256, 1280, state) : rc;
    }
    adam_destroy(adam);
    core_team_destroy(team);
    return rc;
}

/* Steps add no allocation. */
static void nothing_after_create(void)
{
    static const enum core_update_type types[] = {CORE_UPDATE_F32, CORE_UPDATE_BF16,
                                                  CORE_UPDATE_Q8};
    const struct adam_options options = room_options(CORE_UPDATE_F32);
    room_fill(&room, &options);
    for (int n = 0; n < 6; n++) {
        moments = types[n % 3];
        with_team = n >= 3;
        steps = 1;
        check_int(life(), ==, 0); /* fills caches that remain */
        steps = 0;
        const unsigned before = test_fail_nth(life);
        steps = 40;
        const unsigned after = test_fail_nth(life);
        test_note("%s moments%s: %u requests", adam_type_name(moments),
                  with_team ? " on a team" : "", before);
        check_uint(before, >=, 4);
        check_uint(after, ==, before);
    }
}

TEST_MAIN({"nothing_after_create", nothing_after_create})
