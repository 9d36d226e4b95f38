/* Kills `tide finetune` with SIGKILL at seeded random moments, many times. Each time the run is
 * resumed with another placement. It ends with the same model as an undisturbed run. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/finetune/rig.h"
#include "tests/harness/test.h"

/* Steps of a run that is killed repeatedly: more than it ever takes. */
enum { KILLED_STEPS_MAX = 999 };

/* Waits until a run has a checkpoint after step `before`, at most half a minute. */
static void wait_for_newer(const char *folder, int before)
{
    bool inside;
    for (int i = 0; i < 15000 && rig_newest(folder, before, &inside) == before; i++) {
        usleep(2000);
    }
}

/* Runs one series: a run that is killed `kills` times and resumed with another placement each time
 * ends with the model of an undisturbed run. Returns the number of kills during a save. */
static int kill_and_resume(const char *flags, int kills, uint64_t *state)
{
    static const char *const places[] = {"",
                                         "--store %T/store --place weights=store,states=store",
                                         "--store %T/store --place weights=host,states=store",
                                         "--store %T/store --place weights=store,states=host",
                                         "--place weights=host,states=host",
                                         "--place weights=device,states=device"};
    const int steps = kills * 5 < KILLED_STEPS_MAX ? kills * 5 : KILLED_STEPS_MAX;
    char base[400];
    char line[512];
    int newest = 0;
    int hits = 0;
    snprintf(base, sizeof base, "%s--shuffle --seed 3 --steps %d %s", TRAIN_SMALL, steps, flags);
    snprintf(line, sizeof line, "%s --out %%T/untouched -q", base);
    expect(0, line);
    for (int i = 0; i < kills; i++) {
        bool inside = false;
        snprintf(line, sizeof line, "%s --out %%T/hurt --resume --save-every 1 -q %s", base,
                 places[(size_t)i % (sizeof places / sizeof places[0])]);
        const int child = rig_start(NULL, line);
        *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
        wait_for_newer("hurt", newest);
        usleep((useconds_t)((*state >> 33) % 30000));
        kill(child, SIGKILL);
        rig_expect(__LINE__, rig_wait(child), 256 + SIGKILL);
        newest = rig_newest("hurt", newest, &inside);
        hits += inside;
    }
    snprintf(line, sizeof line, "%s --out %%T/hurt --resume", base);
    expect(0, line);
    check_contains(rig_err, "resumed from");
    rig_same_model("untouched", "hurt");
    return hits;
}

/* Kills with all placements, and with deferred, immediate and speculative updates; at least a third
 * of the kills happen during a save. */
static void killed(void)
{
    static const char *const flags[] = {"", "--clip 0", "--clip 100"};
    const int kills = test_full() ? 67 : TEST_COUNT(17, 2);
    uint64_t state = 4242;
    int hits = 0;
    rig_train_begin();
    test_note("seed %" PRIu64, state);
    for (int i = 0; i < 3; i++) {
        hits += kill_and_resume(flags[i], kills, &state);
        rig_remove("hurt");
        rig_remove("untouched");
    }
    test_note("%d kills, %d of them inside a save", 3 * kills, hits);
    check_int(hits, >=, kills);
}

TEST_MAIN({"killed", killed})
