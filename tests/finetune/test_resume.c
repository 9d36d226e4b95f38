/* Tests `tide finetune --resume` with the real engine and a tiny Llama. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/finetune/rig.h"
#include "tests/harness/test.h"

/* A resumed run has the bits of an uninterrupted run, wherever its data was kept. */
static void resumed(void)
{
    rig_train_begin();
/* A linear rate would depend on the number of steps. */
#define SHUFFLED TRAIN_SMALL "--shuffle --seed 5 --schedule constant --warmup 7 "
    expect(0, SHUFFLED "--out %T/whole --steps 9 --log %T/whole.jsonl");
    expect(0, SHUFFLED "--out %T/parts --steps 4 --save-every 2 --keep 1 --log %T/parts.jsonl "
                       "--store %T/store --place weights=store,states=store");
    check_true(rig_has("parts/checkpoint-4") && !rig_has("parts/checkpoint-2"));
    check_true(rig_has("parts/model.safetensors") && !rig_has("parts.partial"));
    expect(2, SHUFFLED "--out %T/parts --steps 9");
    check_contains(rig_err, "--resume to continue");
    expect(0, SHUFFLED "--out %T/parts --steps 9 --resume --log %T/parts.jsonl");
    check_contains(rig_err, "checkpoint-4, after step 4 of 9");
    check_true(rig_has("parts/checkpoint-4"));
    rig_same_model("whole", "parts");
    for (size_t step = 0; step < 9; step++) {
        static const char *const keys[] = {"step", "loss", "grad_norm", "lr"};
        const size_t line = step + (step >= 4); /* after the summary of the first part */
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
            check_double(rig_number("parts.jsonl", line, keys[k]), ==,
                         rig_number("whole.jsonl", step, keys[k]));
        }
    }
    expect(0, "export %T/parts/checkpoint-4 --out %T/exported");
    check_true(rig_has("exported/config.json") && !rig_has("exported/manifest.json"));
    expect(0, "inspect %T/parts/checkpoint-4");
    check_contains(rig_out, "checkpoint of a llama run after step 4");
    check_contains(rig_out, "verified: every byte");
    expect(0, "inspect %T/parts/checkpoint-4 --json");
    check_contains(rig_out, "\"what\": \"checkpoint\"");
    check_int(unlink(rig_path("parts/checkpoint-4/manifest.json")), ==, 0);
    expect(4, "inspect %T/parts/checkpoint-4");
    check_contains(rig_out, "parts/checkpoint-4: checkpoint\n  WRONG: ");
    check_contains(rig_out, "manifest.json cannot be opened: No such file");
    expect(2, "export %T/parts --out %T/nothing");
    check_contains(rig_err, "parts is not a checkpoint; its newest is ");
    check_contains(rig_err, "parts/checkpoint-4");
    expect(2, "inspect %T/whole/checkpoint-1");
    rig_end();
}

/* A resume with another model is refused and changes nothing. */
static void resumed_with_another_model(void)
{
    static const struct {
        const char *flags;
        const char *says;
    } cases[] = {
        {"--model %M/../gpt2", "the checkpoint is of a llama model; this model is a gpt2"},
        {"--model %M/../llama3",
         "the checkpoint has 4 blocks; this run has 3: it has other layers"},
        {"--freeze *embed*", "embedding is trained in the checkpoint and frozen now"},
        {"--precision fp16", "precision is bf16 in the checkpoint and fp16 now"},
    };
    rig_train_begin();
    char copy[300];
    char changed[300];
    snprintf(changed, sizeof changed, "cd '%s' && diff -r llama before", test_directory());
    expect(0, TRAIN_SMALL "--out %T/straight --steps 2 -q");
    expect(0, TRAIN_SMALL "--out %T/llama --steps 1 --save-every 1 -q");
    snprintf(copy, sizeof copy, "cd '%s' && cp -pr llama before", test_directory());
    check_int(system(copy), ==, 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[500];
        snprintf(line, sizeof line, "%s%s --out %%T/llama --steps 2 --resume -q", TRAIN_SMALL,
                 cases[i].flags);
        expect(2, line);
        check_contains(rig_err, "llama/checkpoint-1 cannot be resumed: ");
        check_contains(rig_err, cases[i].says);
        check_true(!rig_has("llama.partial"));
        check_int(system(changed), ==, 0);
    }
    expect(0, TRAIN_SMALL "--out %T/llama --steps 2 --resume -q");
    rig_same_model("straight", "llama");
    rig_end();
}

/* OneCycle moves the first beta, also in a resumed run. */
static void cycled_betas(void)
{
#define CYCLE(momentum)                                                                            \
    "{\"train_batch_size\": 4, \"scheduler\": {\"type\": \"OneCycle\", \"params\": {"              \
    "\"cycle_min_lr\": 1e-3, \"cycle_max_lr\": 1e-2, \"cycle_first_step_size\": 2,"                \
    "\"cycle_min_mom\": 0.5, \"cycle_max_mom\": 0.9, \"cycle_momentum\": " momentum "}}}"
    static const char moving[] = CYCLE("true");
    static const char constant[] = CYCLE("false");
#undef CYCLE
#define CYCLED TRAIN "--threads 2 --rates %T/rates.json -q --config %T/"
    char compare[300];
    rig_train_begin();
    test_file("moving.json", moving, sizeof moving - 1);
    test_file("constant.json", constant, sizeof constant - 1);
    expect(0, CYCLED "moving.json --steps 4 --out %T/cycled");
    expect(0, CYCLED "constant.json --steps 4 --out %T/uncycled");
    snprintf(compare, sizeof compare,
             "cd %s && ! cmp -s cycled/model.safetensors uncycled/model.safetensors",
             test_directory());
    check_int(system(compare), ==, 0);
    expect(0, CYCLED "moving.json --steps 2 --save-every 2 --out %T/halves");
    expect(0, CYCLED "moving.json --steps 4 --out %T/halves --resume");
    rig_same_model("cycled", "halves");
    rig_end();
#undef CYCLED
}

/* Writes 1,200 rows of text, more than a window of packing. */
static void many_texts(void)
{
    enum { ROWS = 1200, ROW_BYTES = 128 };
    static const char *const words[] = {"drive", "reads", "a tier", "norm", "of", "chunk", "queue"};
    char *text = calloc(ROWS, ROW_BYTES);
    size_t at = 0;
    check_true(text != NULL);
    for (size_t row = 0; row < ROWS; row++) {
        at += (size_t)sprintf(text + at, "{\"text\": \"%zu", row);
        for (size_t word = 0; word < 1 + row * 5 % 9; word++) {
            at += (size_t)sprintf(text + at, " %s", words[(row * 3 + word * word) % 7]);
        }
        at += (size_t)sprintf(text + at, "\"}\n");
    }
    test_file("many.jsonl", text, at);
    free(text);
}

/* A resumed run continues with the next rows of text. */
static void resumed_texts(void)
{
    static const char *const flags[] = {"--pack --shuffle --seed 9", "--pack --split --accum 2",
                                        "--shuffle --seed 4 --train-on all"};
    static const char *const places[] = {"", "--store %T/store --place weights=store,states=store"};
    rig_train_begin();
    rig_chat_model();
    many_texts();
    for (size_t i = 0; i < TEST_COUNT(3, 1); i++) {
        char base[300];
        char line[512];
        static const size_t steps[] = {7, 26, 40};
        snprintf(base, sizeof base,
                 "finetune --model %%T/chat/model --data %%T/many.jsonl --seq-len 40 --batch 16 "
                 "--lr 1e-2 --threads 2 --rates %%T/rates.json -q --overwrite %s",
                 flags[i]);
        snprintf(line, sizeof line, "%s --steps 40 --out %%T/t0 --log %%T/t0.jsonl", base);
        expect(0, line);
        for (size_t part = 0; part < 3; part++) {
            snprintf(line, sizeof line,
                     "%s --steps %zu --save-every %zu --out %%T/t1 --log %%T/t1.jsonl %s %s", base,
                     steps[part], steps[part], part > 0 ? "--resume" : "", places[part % 2]);
            expect(0, line);
        }
        for (size_t step = 0; step < 40; step++) {
            /* Earlier parts have lines of summary. */
            const size_t summaries = (size_t)(step >= 7) + (size_t)(step >= 26);
            check_double(rig_number("t1.jsonl", step + summaries, "loss"), ==,
                         rig_number("t0.jsonl", step, "loss"));
            check_double(rig_number("t1.jsonl", step + summaries, "grad_norm"), ==,
                         rig_number("t0.jsonl", step, "grad_norm"));
        }
        rig_same_model("t0", "t1");
        rig_remove("t1");
        check_int(unlink(rig_path("t1.jsonl")), ==, 0);
    }
    rig_end();
}

/* A run that still reads rows keeps others out of its output folder, and ends at a signal. The test
 * closes the pipe last because TSan runs a handler only after read() has returned. */
static void stopped_at_once(void)
{
    rig_train_begin();
    int rows = -1;
    const int run = rig_start_reader("finetune --model %M --data - --out %T/none -q", &rows);
    expect(2, "finetune --model %M --data %T/no-rows --out %T/./none --log %T/late.jsonl "
              "--tensorboard %T/late");
    check_contains(rig_err, "none.partial; name another folder, or wait until that run ends");
    check_true(!rig_has("late.jsonl") && !rig_has("late") && rig_has("none.partial"));
    kill(run, SIGTERM);
    close(rows);
    rig_expect(__LINE__, rig_wait(run), 130);
    check_contains(rig_err, "stopped by a signal before the first step");
    check_true(!rig_has("none") && !rig_has("none.partial"));
    expect(2, "finetune --model %M --data %T/no-rows --out %T/no/such/");
    check_contains(rig_err, "/no/such/ cannot be created in ");
    check_true(!rig_has("no"));
    expect(2, "finetune --model %M --data %T/no-rows --out %T/none");
    check_contains(rig_err, "no-rows");
    check_true(!rig_has("none.partial"));
    rig_end();
}

/* A resumed run takes a given loss scale, and reports a changed number of threads or ranks. */
static void resumed_otherwise(void)
{
    char arguments[256];
    rig_train_begin();
#define SCALED(scale)                                                                              \
    "{\"train_micro_batch_size_per_gpu\": 2, \"fp16\": {\"enabled\": true, \"loss_scale\": " scale \
    "}}"
    test_file("s1.json", SCALED("1024"), strlen(SCALED("1024")));
    test_file("s2.json", SCALED("256"), strlen(SCALED("256")));
#define FP16                                                                                       \
    "finetune --model %M --data %T/d.jsonl --rates %T/rates.json --out %T/fp16 --save-every 2 "
    expect(0, FP16 "--config %T/s1.json --steps 2");
    expect(0, FP16 "--config %T/s2.json --steps 4 --resume --log %T/fp16.jsonl");
    check_contains(rig_err, "the loss scale is fixed at 256; it was 1024 before");
    check_double(rig_number("fp16.jsonl", 0, "loss_scale"), ==, 256);
#define LONE                                                                                       \
    "finetune --model %M --data %T/d.jsonl --rates %T/rates.json --out %T/lone --save-every 2 "
    snprintf(arguments, sizeof arguments, "%s--steps 2 --threads %ld", LONE,
             sysconf(_SC_NPROCESSORS_ONLN) + 3);
    expect(0, arguments);
    expect(0, LONE "--steps 4 --resume");
    check_contains(rig_err, "threads was ");
    check_contains(rig_err, "results will not be identical");
    expect(2, LONE "--steps 4 --resume --seq-len 4"); /* refused */
    check_contains(rig_err, "/lone/checkpoint-4: ");
    check_contains(rig_err,
                   "the data or the options differ from those of the checkpoint: --seq-len");
    check_true(strstr(rig_err, "will not be identical") == NULL);
    expect(0, LONE "--steps 6 --resume --threads 1");
    expect(0, LONE "--steps 8 --resume"); /* with the checkpoint's single thread */
    check_true(strstr(rig_err, "threads was ") == NULL);
    check_true(strstr(rig_err, "the learning rate follows") == NULL);
    expect(0, LONE "--steps 9 --resume --lr 0.5 --schedule cosine --warmup 2");
    check_contains(rig_err,
                   "the learning rate follows --lr 0.5 --schedule cosine --warmup 2 --steps 9 "
                   "from now on; it followed --lr 5e-05 --schedule constant --warmup 0 --steps "
                   "8 before");
    expect(0, LONE "--steps 10 --resume --ranks 2");
    check_contains(rig_err, "ranks was 1 before this run was resumed and is 2 now");
    rig_end();
}

/* Smaller steps after a resume do not hide the longest row of the run. */
static void resumed_with_smaller_steps(void)
{
    static const char rows[] = "{\"input_ids\": [1, 2]}\n{\"input_ids\": [3, 4]}\n"
                               "{\"input_ids\": [5, 6]}\n{\"input_ids\": [7, 8]}\n"
                               "{\"input_ids\": [1, 2, 3, 4, 5]}\n{\"input_ids\": [6, 7]}\n";
    rig_train_begin();
    test_file("d.jsonl", rows, strlen(rows));
#define SMALLER                                                                                    \
    "finetune --model %M --data %T/d.jsonl --rates %T/rates.json --out %T/smaller --batch 2 "      \
    "--save-every 1 "
    expect(0, SMALLER "--steps 1 --ranks 2");
    expect(0, SMALLER "--steps 2 --resume");
    check_contains(rig_err, "/smaller/checkpoint-1, after step 1 of 2");
    rig_end();
}

/* A changed config.json is reported, although the shapes are equal. */
static void another_config(void)
{
    rig_train_begin();
#define WINDOW(model)                                                                              \
    "finetune --model %M/../" model " --data %T/d.jsonl --threads 2 --rates %T/rates.json --out "  \
    "%T/window --save-every 2 "
    expect(0, WINDOW("mistral") "--steps 2");
    expect(0, WINDOW("mistral") "--steps 4 --resume");
    check_true(strstr(rig_err, "config.json") == NULL);
    expect(0, WINDOW("mistral_layers") "--steps 6 --resume");
    check_contains(rig_err, "config.json of the model differs from that of the checkpoint");
    rig_end();
}

static int start_ignoring(const int *signals, const char *arguments)
{
    for (int i = 0; i < 2; i++) {
        signal(signals[i], SIG_IGN);
    }
    const int child = rig_start(NULL, arguments);
    for (int i = 0; i < 2; i++) {
        signal(signals[i], SIG_DFL);
    }
    return child;
}

/* A closed terminal ends a run with a checkpoint, unless SIGHUP was ignored at the start. */
static void hung_up_and_ignored(void)
{
    rig_train_begin();
    int run = rig_start(NULL, TRAIN_SMALL "--out %T/hung --steps 1000000 --log %T/hung.jsonl -q");
    rig_wait_for_text("hung.jsonl");
    kill(run, SIGHUP);
    rig_expect(__LINE__, rig_wait(run), 130);
    check_contains(rig_err, "--resume continues from there");
    run = start_ignoring((const int[]){SIGINT, SIGHUP},
                         TRAIN_SMALL "--out %T/away --steps 1000000 --log %T/away.jsonl -q");
    rig_wait_for_text("away.jsonl");
    kill(run, SIGINT);
    kill(run, SIGHUP);
    const size_t seen = strlen(rig_read("away.jsonl"));
    for (int i = 0; i < 2400 && strlen(rig_read("away.jsonl")) <= seen + 1000; i++) {
        usleep(50000);
    }
    check_int(waitpid(run, NULL, WNOHANG), ==, 0);
    kill(run, SIGTERM);
    rig_expect(__LINE__, rig_wait(run), 130);
    rig_remove("hung");
    rig_remove("away");
    rig_end();
}

/* The log, the table and the timeline may be in --out, which the first run creates. */
static void log_in_the_folder(void)
{
    static const char *const names[] = {"run.jsonl", "run.csv", "t.json", "model.safetensors"};
    static const char *const runs[] = {"--steps 2", "--steps 4 --save-every 1 --resume",
                                       "--steps 6 --resume", "--steps 3 --overwrite"};
    static const char run[] = TRAIN_SMALL "--out %T/in -q --log %T/in/run.jsonl --csv "
                                          "%T/in/run.csv --trace %T/in/t.json";
    char line[1024];
    rig_train_begin();
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        snprintf(line, sizeof line, "%s %s", run, runs[i]);
        expect(0, line);
        for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
            snprintf(line, sizeof line, "in/%s", names[k]);
            check_true(rig_has(line));
        }
        check_true(!rig_has("in.partial"));
    }
    check_double(rig_number("in/run.jsonl", 2, "step"), ==, 3);
    rig_remove("in");
    expect(0, TRAIN_SMALL "--out %T/in --steps 2 --save-every 1 --resume -q --log %T/in/run.jsonl");
    check_true(rig_has("in/checkpoint-2") && rig_has("in/model.safetensors"));
    check_double(rig_number("in/run.jsonl", 1, "step"), ==, 2);
    rig_end();
}

/* --resume and --overwrite keep files of the user; a run that would replace one is refused. */
static void files_of_the_user(void)
{
    rig_train_begin();
    mkdir(rig_path("u"), 0700);
    test_file("u/thesis.tex", "of years", 8);
    expect(0, TRAIN_SMALL "--out %T/u --steps 4 --save-every 2 --resume -q --log %T/u/log.jsonl "
                          "--csv %T/u/log.csv --tensorboard %T/u/tb");
    for (int i = 0; i < 3; i++) {
        check_string(rig_read("u/thesis.tex"), "of years");
        check_contains(rig_read("u/log.jsonl"), "median_seconds");
        check_contains(rig_read("u/log.csv"), "\n4,");
        check_true(rig_has("u/tb") && rig_has("u/model.safetensors") && !rig_has("u.partial"));
        if (i == 0) {
            expect(0, TRAIN_SMALL "--out %T/u --steps 6 --resume -q --log %T/u/log.jsonl");
        } else if (i == 1) {
            expect(0, TRAIN_SMALL "--out %T/u --steps 1 --overwrite -q");
        }
    }
    /* A finished run keeps its log, and says that it is finished. */
    expect(0, TRAIN_SMALL "--out %T/twice --steps 2 --save-every 1 -q --log %T/twice.jsonl");
    char *log = strdup(rig_read("twice.jsonl"));
    check_true(log != NULL);
    expect(0, TRAIN_SMALL "--out %T/twice --steps 2 --resume --log %T/twice.jsonl");
    check_contains(rig_err, "the run is already finished, after step 2 of 2: nothing was trained");
    check_true(strstr(rig_err, "measured") == NULL && strstr(rig_err, "tokens/s\n") == NULL);
    check_string(rig_read("twice.jsonl"), log);
    free(log);
    /* A run whose last step is after its newest checkpoint is finished, unless another checkpoint
     * was due. */
    expect(0, TRAIN_SMALL "--out %T/part --steps 2 --save-every 2 -q");
    expect(0, TRAIN_SMALL "--out %T/part --steps 3 --resume -q");
    expect(0, TRAIN_SMALL "--out %T/part --steps 3 --save-every 2 --resume");
    check_contains(rig_err, "the run is already finished, after step 3 of 3: nothing was trained");
    check_contains(rig_out, "/part: 3 steps, left as it was");
    expect(0, TRAIN_SMALL "--out %T/part --steps 3 --save-every 3 --resume");
    check_true(strstr(rig_err, "already finished") == NULL && rig_has("part/checkpoint-3"));
    expect(0, TRAIN_SMALL "--out %T/v --steps 1 -q");
    expect(0, TRAIN_SMALL "--out %T/v --steps 2 --resume"); /* the run begins again */
    check_contains(rig_err, "no checkpoint in ");
    /* A finished run without checkpoints trains nothing, either. */
    check_int(mkdir(rig_path("v2"), 0700), ==, 0);
    check_int(link(rig_path("v/model.safetensors"), rig_path("v2/model.safetensors")), ==, 0);
    expect(0, TRAIN_SMALL "--out %T/v --steps 2 --resume --save-every 1 --seed 5");
    check_contains(rig_err, "the run is already finished, after step 2 of 2: nothing was trained");
    check_true(strstr(rig_err, "no checkpoint in ") == NULL && !rig_has("v/checkpoint-2"));
    check_contains(rig_out, "/v: 2 steps, left as it was");
    rig_same_file("v", "v2", "model.safetensors");
    expect(0, TRAIN_SMALL "--out %T/v --steps 2 --overwrite --resume -q"); /* trains again */
    check_contains(rig_out, "/v: 2 steps, loss ");
    expect(2, TRAIN_SMALL "--out %T/v --steps 1 --resume -q");
    check_contains(rig_err, "--steps 1, but the model in ");
    mkdir(rig_path("w"), 0700);
    expect(0, TRAIN_SMALL "--out %T/w --steps 2 --save-every 1 -q");
    test_file("w/tokenizer.json", "changed by hand", 15);
    char line[2000];
    snprintf(line, sizeof line,
             "cp -r '%s/model/fixtures/llama' '%s/mt' && chmod -R u+w '%s/mt' && "
             "echo '{}' >'%s/mt/tokenizer.json'",
             test_root(), test_directory(), test_directory(), test_directory());
    check_int(system(line), ==, 0);
    expect(2, "finetune --model %T/mt --data %T/d.jsonl --batch 2 --out %T/w --steps 3 --resume");
    check_contains(rig_err, "the file tokenizer.json in it is not a copy");
    check_string(rig_read("w/tokenizer.json"), "changed by hand");
    rig_end();
}

/* --resume replaces only a model of this run that is unchanged and not newer than the
 * checkpoint. */
static void model_of_another(void)
{
    static const char *const names[] = {"config.json", "model.safetensors",
                                        "model-00001-of-00002.safetensors",
                                        "model.safetensors.index.json"};
    char line[3000];
    rig_train_begin();
    expect(0, TRAIN_SMALL "--out %T/mine --steps 2 --save-every 1 -q");
    for (int noted = 0; noted < 2; noted++) {
        for (size_t i = TEST_COUNT(0, (size_t)noted); i < sizeof names / sizeof names[0];
             i += TEST_COUNT(1, 2)) {
            char name[64];
            snprintf(name, sizeof name, "r/%s", names[i]);
            snprintf(line, sizeof line, "cd '%s' && cp -pr mine r", test_directory());
            check_int(system(line), ==, 0);
            if (noted == 0) {
                check_int(unlink(rig_path("r/.tide-model")), ==, 0);
                check_int(unlink(rig_path("r/config.json")), ==, 0);
                check_int(unlink(rig_path("r/model.safetensors")), ==, 0);
            }
            test_file(name, "my own", 6);
            expect(2, TRAIN_SMALL "--out %T/r --steps 3 --resume -q");
            check_contains(rig_err, names[i]);
            check_contains(rig_err, "this run did not write it");
            check_string(rig_read(name), "my own");
            check_true(!rig_has("r.partial") && !rig_has("r/checkpoint-3"));
            rig_remove("r");
        }
    }
    /* A model of another run, and a model of unknown origin. */
    expect(0, TRAIN_SMALL "--out %T/r --steps 2 --save-every 1 -q");
    expect(0, TRAIN_SMALL "--out %T/s --steps 1 -q");
    snprintf(line, sizeof line, "cp -p '%s/s/'*.* '%s/s/.tide-model' '%s/r/'", test_directory(),
             test_directory(), test_directory());
    check_int(system(line), ==, 0);
    expect(2, TRAIN_SMALL "--out %T/r --steps 3 --resume -q");
    check_contains(rig_err, "its model and its checkpoints belong to different runs");
    check_int(unlink(rig_path("s/.tide-model")), ==, 0);
    expect(2, TRAIN_SMALL "--out %T/s --steps 3 --resume -q");
    check_contains(rig_err, "this run did not write it");
    /* A copy is the same model in spite of other times; a changed byte makes another model. */
    expect(0, TRAIN_SMALL "--out %T/t --steps 2 --save-every 1 -q");
    snprintf(line, sizeof line, "cd '%s' && cp -r t t2 && find t2 -exec touch -d 2001-01-01 {} +",
             test_directory());
    check_int(system(line), ==, 0);
    expect(0, TRAIN_SMALL "--out %T/t2 --steps 3 --resume -q");
    snprintf(line, sizeof line,
             "cd '%s' && cp -r t t3 && find t3 -exec touch -d 2001-01-01 {} + && "
             "printf Z | dd of=t3/model.safetensors bs=1 seek=4000 conv=notrunc 2>dd.txt",
             test_directory());
    check_int(system(line), ==, 0);
    expect(2, TRAIN_SMALL "--out %T/t3 --steps 3 --resume -q");
    check_contains(rig_err, "model.safetensors");
    check_contains(rig_err, "this run did not write it");
    /* A model that is newer than the checkpoint is kept. */
    expect(0, TRAIN_SMALL "--out %T/q --steps 2 --save-every 2 -q");
    expect(0, TRAIN_SMALL "--out %T/q --steps 5 --resume -q");
    check_int(mkdir(rig_path("copy"), 0700), ==, 0);
    check_int(link(rig_path("q/model.safetensors"), rig_path("copy/model.safetensors")), ==, 0);
    expect(0, TRAIN_SMALL "--out %T/q --steps 2 --resume");
    check_contains(rig_err, "nothing was trained");
    check_contains(rig_out, "/q: 5 steps, left as it was");
    rig_same_model("q", "copy");
    expect(2, TRAIN_SMALL "--out %T/q --steps 4 --resume -q");
    check_contains(rig_err, "is after step 5; request at least that many");
    expect(2, TRAIN_SMALL "--out %T/q --steps 1 --resume");
    check_contains(rig_err, "/q/checkpoint-2 is after step 2; request at least that many");
    check_true(strstr(rig_err, "resumed from") == NULL);
    rig_same_model("q", "copy");
    /* A model without a file is written again. */
    check_int(unlink(rig_path("q/config.json")), ==, 0);
    expect(0, TRAIN_SMALL "--out %T/q --steps 2 --resume -q");
    check_true(rig_has("q/config.json"));
    rig_end();
}

/* A chat template that writes the time gets the first part's time in a resumed run. */
static void resumed_clock(void)
{
    static const char config[] =
        "{\"eos_token\": \"<|endoftext|>\", \"chat_template\": \"{% for m in messages %}{{ m.role "
        "}} "
        "{{ strftime_now('%d %b %Y %H:%M:%S') }}:{{ m.content }}{{ eos_token }}{% endfor %}\"}";
    static const char row[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": "
        "\"assistant\", \"content\": \"Yo\"}]}\n";
    static const char base[] =
        "finetune --model %T/chat/model --data %T/clock.jsonl --batch 1 --lr 1e-2 --threads 2 "
        "--rates %T/rates.json -q --train-on all --save-every 2 ";
    char line[600];
    rig_train_begin();
    rig_chat_model();
    test_file("chat/model/tokenizer_config.json", config, strlen(config));
    test_file("clock.jsonl", row, strlen(row));
    snprintf(line, sizeof line, "%s --out %%T/c0 --steps 4 --log %%T/c0.jsonl", base);
    expect_with(0, "SOURCE_DATE_EPOCH=1000000000", line);
    snprintf(line, sizeof line, "%s --out %%T/c1 --steps 2 --log %%T/c1.jsonl", base);
    expect_with(0, "SOURCE_DATE_EPOCH=1000000000", line);
    snprintf(line, sizeof line, "%s --out %%T/c1 --steps 4 --resume --log %%T/c1.jsonl", base);
    expect_with(0, "SOURCE_DATE_EPOCH=1111111111", line);
    rig_same_model("c0", "c1");
    snprintf(line, sizeof line, "%s --out %%T/c2 --steps 4 --log %%T/c2.jsonl", base);
    expect_with(0, "SOURCE_DATE_EPOCH=1111111111", line);
    check_true(rig_number("c2.jsonl", 3, "loss") != rig_number("c0.jsonl", 3, "loss"));
    check_double(rig_number("c1.jsonl", 4, "loss"), ==, rig_number("c0.jsonl", 3, "loss"));
    check_int(unlink(rig_path("chat/model/tokenizer_config.json")), ==, 0);
    rig_end();
}

TEST_MAIN({"log_in_the_folder", log_in_the_folder}, {"files_of_the_user", files_of_the_user},
          {"resumed_otherwise", resumed_otherwise},
          {"resumed_with_smaller_steps", resumed_with_smaller_steps},
          {"another_config", another_config}, {"stopped_at_once", stopped_at_once},
          {"hung_up_and_ignored", hung_up_and_ignored}, {"resumed", resumed},
          {"cycled_betas", cycled_betas},
          {"resumed_with_another_model", resumed_with_another_model},
          {"model_of_another", model_of_another}, {"resumed_texts", resumed_texts},
          {"resumed_clock", resumed_clock})
