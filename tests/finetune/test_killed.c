/* A run that is killed and resumed many times, at random moments and in saves, ends with the model
 * of an undisturbed run. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/finetune/rig.h"
#include "tests/harness/test.h"

enum { KILLED_STEPS_MAX = 999 };

/* A save has about 40 points for killing; a larger number means the last one. */
enum { POINTS = 36 };

/* Waits up to 30 s for a checkpoint after step `before`. */
static void wait_for_newer(const char *folder, int before)
{
    bool inside;
    for (int i = 0; i < 15000 && rig_newest(folder, before, &inside) == before; i++) {
        usleep(2000);
    }
}

/* Kills a run at a random time after its next checkpoint. If the run ended before, its folder is
 * removed. */
static void kill_at_random(const char *line, int *newest, uint64_t *state)
{
    bool inside = false;
    const int child = rig_start(NULL, line);
    wait_for_newer("hurt", *newest);
    usleep((useconds_t)test_random(state, 30000));
    kill(child, SIGKILL);
    const int code = rig_wait(child);
    *newest = rig_newest("hurt", *newest, &inside);
    if (code == 0) {
        rig_remove("hurt");
        *newest = 0;
    } else {
        rig_expect(__LINE__, code, 256 + SIGKILL);
    }
}

/* Kills a run in its first save, before or just after the checkpoint is renamed. */
static void kill_in_save(const char *line, int *newest, uint64_t *state)
{
    char setting[32];
    bool inside = false;
    const unsigned point = (unsigned)test_random(state, POINTS + 1);
    snprintf(setting, sizeof setting, "TIDE_TEST_KILL=%u", point);
    rig_program = "tests/finetune/tide_killed";
    expect_with(256 + SIGKILL, setting, line);
    rig_program = "tools/tide";
    const int now = rig_newest("hurt", *newest, &inside);
    check_true(point == 0 ? now > *newest && !inside : now == *newest && inside);
    *newest = now;
}

/* Kills a run `kills` times, resumes the run with other placements, and compares the model with an
 * undisturbed run's. */
static void kill_and_resume(const char *flags, int kills, uint64_t *state)
{
    static const char *const places[] = {"",
                                         "--store %T/store --place weights=store,states=store",
                                         "--store %T/store --place weights=host,states=store",
                                         "--store %T/store --place weights=store,states=host",
                                         "--place weights=host,states=host",
                                         "--place weights=device,states=device",
                                         ""};
    const int steps = kills * 5 < KILLED_STEPS_MAX ? kills * 5 : KILLED_STEPS_MAX;
    char base[400];
    char line[512];
    int newest = 0;
    snprintf(base, sizeof base, "%s--shuffle --seed 3 --steps %d %s", TRAIN_SMALL, steps, flags);
    snprintf(line, sizeof line, "%s --out %%T/untouched -q", base);
    expect(0, line);
    for (int i = 0; i < kills; i++) {
        snprintf(line, sizeof line, "%s --out %%T/hurt --resume --save-every 1 -q %s", base,
                 places[(size_t)i % (sizeof places / sizeof places[0])]);
        if (i % 2 == 0) {
            kill_at_random(line, &newest, state);
        } else {
            kill_in_save(line, &newest, state);
        }
    }
    snprintf(line, sizeof line, "%s --out %%T/hurt --resume", base);
    expect(0, line);
    check_contains(rig_err, "resumed from");
    rig_same_model("untouched", "hurt");
}

/* The limits of the norm let the planner choose different timings of updates. */
static void killed(void)
{
    static const char *const flags[] = {"", "--clip 0", "--clip 100"};
    const int kills = test_full() ? 67 : TEST_COUNT(17, 2);
    uint64_t state = 4242;
    rig_train_begin();
    test_note("seed %" PRIu64 ", %d kills", state, 3 * kills);
    for (int i = 0; i < 3; i++) {
        kill_and_resume(flags[i], kills, &state);
        rig_remove("hurt");
        rig_remove("untouched");
    }
}

TEST_MAIN({"killed", killed})
