/* Tests `tide finetune --store` with the real engine and a tiny Llama. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/finetune/rig.h"
#include "tests/harness/test.h"

/* A store or output folder that another run uses is refused and unchanged. */
static void shared_store(void)
{
    rig_train_begin();
    int first = rig_start(NULL, TRAIN_SMALL "--out %T/first --steps 1000000 --store %T/store "
                                            "--place states=store --log %T/first.jsonl -q");
    rig_wait_for_text("first.jsonl");
    expect(2, TRAIN_SMALL "--out %T/first/ --steps 2");
    check_contains(rig_err, "first.partial; name another folder, or wait until that run ends");
    check_int(mkdir(rig_path("third.partial"), 0700), ==, 0);
    test_file("third.partial/diary", "dear", 4);
    expect(2, TRAIN_SMALL "--out %T/third --steps 2");
    check_contains(rig_err, "third.partial has files that no run of tide left");
    check_true(rig_has("third.partial/diary") && !rig_has("third"));
    expect(0, "inspect %T/store");
    check_contains(rig_out, "in use: a running process has it open");
    check_contains(rig_out, "verified: headers and sizes");
    expect(2, "plan --model %T/store");
    check_contains(rig_err, "is a store with the states of a run");
    expect(0, "inspect --json %T/store");
    check_contains(rig_out, "\"what\": \"store\"");
    check_contains(rig_out, "\"in_use\": true");
    int second = rig_start(NULL, TRAIN_SMALL "--out %T/second --steps 2 --store %T/store "
                                             "--place states=store");
    int code = rig_wait(second);
    check_contains(rig_err, "store");
    check_true(code == 1 || code == 2);
    check_true(!rig_has("second/model.safetensors"));
    kill(first, SIGINT);
    rig_expect(__LINE__, rig_wait(first), 130);
    check_contains(rig_err, "--resume continues from there");
    check_true(!rig_has("first/model.safetensors") && !rig_has("first.partial"));
    check_uint(rig_entries("store"), ==, 0);
    expect(0, "inspect %T/store");
    check_contains(rig_out, "/store: empty, like a store that no run uses");
    expect(0, "inspect --json %T/store");
    check_contains(rig_out, "\"what\": \"store\"");
    expect(2, "plan --model %T/store");
    check_contains(rig_err, "neither a model (there is no config.json) nor a checkpoint");
    expect(4, "inspect %T/first");
    check_contains(rig_out, "has no model, but 1 checkpoint, the newest of which is ");
    expect(2, TRAIN_SMALL "--out %T/fourth --steps 2 --store %T/no/where --place states=store");
    check_contains(rig_err, "no/where");
}

/* The planner counts whole extents in the limits of several stores, as the stores do. */
static void limited_stores(void)
{
    enum { STORES = 4, MIB = 1 << 20 };
    static const char plan[] = "plan --model %M --data %T/d.jsonl --batch 2 --threads 2 --rates "
                               "%T/rates.json --place weights=store,states=store,acts=recompute";
    rig_train_begin();
    check_int(mkdir(rig_path("one"), 0700), ==, 0);
    char line[2000];
    snprintf(line, sizeof line, "%s --store %%T/one:8K", plan);
    expect(3, line);
    const char *found = strstr(rig_err, "any one of: --store DIR:");
    check_true(found != NULL);
    const long least = strtol(found + strlen("any one of: --store DIR:"), NULL, 10);
    check_int(least, >, 0);
    for (int cut = 0; cut < 2; cut++) { /* each of several stores reserves a MiB for its end */
        size_t at = (size_t)snprintf(line, sizeof line, "%s", plan);
        for (int i = 0; i < STORES; i++) {
            const long more = cut == 1 ? 4096 : i + 1 < STORES ? MIB / 8 : least * MIB;
            const long bytes = MIB + more;
            at += (size_t)snprintf(line + at, sizeof line - at, " --store %%T/limited-%d:%ld", i,
                                   bytes);
        }
        expect(cut == 0 ? 0 : 3, line);
    }
    rig_end();
}

/* A killed run's store is removed when the run is resumed without a store. */
static void killed_store(void)
{
    rig_train_begin();
    int first = rig_start(NULL, TRAIN_SMALL "--out %T/killed --steps 1000000 --store %T/store "
                                            "--place states=store --log %T/killed.jsonl -q");
    rig_wait_for_text("killed.jsonl");
    check_uint(rig_entries("store"), ==, 1);
    kill(first, SIGKILL);
    (void)rig_wait(first);
    check_uint(rig_entries("store"), ==, 1);
    expect(0, TRAIN_SMALL "--out %T/killed --steps 2 --resume");
    check_uint(rig_entries("store"), ==, 0);
    check_true(rig_has("killed/model.safetensors") && !rig_has("killed.partial"));
}

/* A limit on file sizes gives exit code 1, not the code of a plan that does not fit. */
static void file_size_limit(void)
{
    static const char *const stores[] = {
        "", "--store limited:1G --make-store --place states=store --io threads",
        /* speeds of several drives are measured in spite of --rates */
        "--store limited:1G --store more:1G --make-store --place states=store --io threads"};
    char command[2048];
    rig_train_begin();
    const char *root = getenv("TIDE_BUILD_ROOT");
    for (size_t i = 0; i < sizeof stores / sizeof stores[0]; i++) {
        snprintf(command, sizeof command,
                 "cd '%s' && ulimit -f 16 && '%s/tools/tide' finetune "
                 "--model '%s/model/fixtures/llama' --data d.jsonl --out limited-out --steps 1 "
                 "--threads 2 --rates rates.json -q %s >limited.txt 2>&1",
                 test_directory(), root != NULL ? root : "build", test_root(), stores[i]);
        const int status = system(command);
        const char *said = rig_read("limited.txt");
        if (strstr(said, "File too large") == NULL && strstr(said, "ulimit -f") == NULL) {
            test_fail(__FILE__, __LINE__, "no word of the limit: %s", said);
        }
        check_int(WEXITSTATUS(status), ==, 1);
    }
    rig_end();
}

TEST_MAIN({"file_size_limit", file_size_limit}, {"shared_store", shared_store},
          {"limited_stores", limited_stores}, {"killed_store", killed_store})
