/* Tests `tide report` with logs of `tide finetune`. */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/finetune/rig.h"
#include "tests/harness/test.h"

/* A log becomes a page beside it, or at --out. */
static void pages(void)
{
    rig_rows();
    expect(0, TRAIN "--out %T/o --steps 4 --log %T/run.jsonl --eval-data %T/d.jsonl");
    expect(0, "report %T/run.jsonl");
    check_contains(rig_out, "/run.html: steps 1 to 4, loss 8 -> 2, 250 ms per step");
    check_contains(rig_read("run.html"), "<title>llama ");
    check_contains(rig_read("run.html"), "\"plan\":{\"known\":true,");
    expect(0, "report %T/run.jsonl --out %T/other.html");
    check_contains(rig_read("other.html"), "</html>");
    expect(0, "report %T/run.jsonl --out -");
    check_contains(rig_out, "</html>");
    check_true(strstr(rig_out, "per step\n") == NULL);
    expect(0, "report %T/run.jsonl --out /dev/null");
    mkdir(rig_path("one"), 0700);
    test_file("one/notes.txt", "x", 1);
    test_file("one/l.jsonl", "{\"step\":1}\n", 11);
    expect(0, "report %T/one");
    check_true(rig_has("one/l.html"));
    expect(0, "report --help");
    check_contains(rig_out, "Example:\n  tide report run.jsonl");
}

/* Errors name the files, and no incomplete page is left. */
static void refused(void)
{
    expect(2, "report");
    expect(2, "report %T/none.jsonl");
    check_contains(rig_err, "none.jsonl: No such file");
    mkdir(rig_path("two"), 0700);
    expect(2, "report %T/two");
    check_contains(rig_err,
                   "two has no log (*.jsonl); name the file that tide finetune --log wrote");
    test_file("two/a.jsonl", "{\"step\":1}\n", 11);
    test_file("two/b.jsonl", "{\"step\":1}\n", 11);
    expect(2, "report %T/two");
    check_contains(rig_err, "has 2 logs");
    check_contains(rig_err, "a.jsonl");
    test_file("bad.jsonl", "{\"step\":1}\n{\"step\":2,\"loss\":[]}\n", 33);
    expect(2, "report %T/bad.jsonl");
    check_contains(rig_err, "bad.jsonl:2: key \"loss\" is not a number or null");
    check_true(!rig_has("bad.html"));
    expect(2, "report %T/two/a.jsonl --out %T/no/such/x.html");
    check_contains(rig_err, "x.html cannot be written");
    expect(2, "report %T/two/a.jsonl --out %T/two/../two/a.jsonl");
    check_contains(rig_err, "would overwrite the file of RUN ");
    check_contains(rig_err, "two/a.jsonl");
    check_string(rig_read("two/a.jsonl"), "{\"step\":1}\n");
    expect(1, "report %T/two/a.jsonl --out /dev/full");
    check_contains(rig_err, "/dev/full cannot be written: No space left on device");
    check_int(mkfifo(rig_path("fifo"), 0600), ==, 0);
    expect(2, "report %T/two/a.jsonl --out %T/fifo");
    check_contains(rig_err, "/fifo cannot be written: it is a FIFO that no process reads; start");
}

/* A resumed run removes the incomplete last line of a killed run. */
static void torn_log(void)
{
    rig_rows();
    test_file("torn.jsonl", "{\"step\":1,\"loss\":8.0}\n{\"step\":2,\"lo", 34);
    test_file("torn.csv", "step,loss,grad_norm,lr,loss_scale\n1,8\n2,", 40);
    expect(0, TRAIN "--out %T/to --steps 2 --resume --log %T/torn.jsonl --csv %T/torn.csv");
    expect(0, "report %T/torn.jsonl");
    check_contains(rig_out, "steps 1 to 2");
    check_contains(rig_read("torn.html"), "\"restarts\":1,\"repeated\":1,");
    check_contains(rig_read("torn.csv"), "\n1,8\n1,8,");
}

TEST_MAIN({"pages", pages}, {"refused", refused}, {"torn_log", torn_log})
