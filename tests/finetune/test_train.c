/* Tests `tide finetune` with the real engine and a tiny Llama. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/file.h"
#include "tests/finetune/rig.h"
#include "tests/harness/test.h"

/* A run in memory and a run on the drive train the same model. */
static void anywhere(void)
{
    rig_train_begin();
    expect(0, TRAIN_SMALL "--out %T/memory --epochs 4 --log %T/memory.jsonl");
    expect(0, TRAIN_SMALL "--out %T/drive --epochs 4 --log %T/drive.jsonl --store %T/store "
                          "--place weights=store,states=store,acts=recompute");
    rig_same_model("memory", "drive");
    check_true(rig_has("drive/config.json") && rig_has("drive/generation_config.json"));
    check_uint(rig_entries("store"), ==, 0);
    check_double(rig_number("drive.jsonl", 7, "loss"), <,
                 0.5 * rig_number("drive.jsonl", 0, "loss"));
    check_double(rig_number("drive.jsonl", 3, "store_write_bytes"), >, 0);
    check_double(rig_number("memory.jsonl", 3, "store_write_bytes"), ==, 0);
    check_double(rig_number("drive.jsonl", 8, "plan_host_gb"), >, 0);
}

/* The loss falls with several precisions, optimizers and kinds of moments. */
static void kinds(void)
{
    static const char *const flags[] = {
        "--precision fp32",      "--precision fp16", "--optimizer lion",    "--optimizer adagrad",
        "--optimizer sgd",       "--moments bf16",   "--moments 8bit",      "--optimizer adam",
        "--fp32-grads --clip 0", "--freeze *embed*", "--lora 4 --base nf4", "--lora 4 --lora-dora"};
    rig_train_begin();
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments,
                 "%s%s --out %%T/k --overwrite --steps 6 --log %%T/k.jsonl", TRAIN_SMALL, flags[i]);
        expect(0, arguments);
        double first = rig_number("k.jsonl", 0, "loss");
        double last = rig_number("k.jsonl", 5, "loss");
        if (!(last < first)) {
            test_fail(__FILE__, __LINE__, "%s: %g -> %g", flags[i], first, last);
        }
    }
}

/* Learning rates and printed steps come from ds_config.json. */
static void config(void)
{
    static const char text[] =
        "{\"train_batch_size\": 4, \"train_micro_batch_size_per_gpu\": 2, \"gradient_clipping\": "
        "0.5,\n"
        " \"bf16\": {\"enabled\": true}, \"steps_per_print\": 2,\n"
        " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-2}},\n"
        " \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_num_steps\": 2,\n"
        "   \"warmup_type\": \"linear\"}},\n"
        " \"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\": \"cpu\"}}}";
    rig_train_begin();
    test_file("ds.json", text, strlen(text));
    expect(0, "finetune --model %M --data %T/d.jsonl --out %T/c --config %T/ds.json --epochs 2 "
              "--log %T/c.jsonl");
    check_double(rig_number("c.jsonl", 1, "lr"), ==, 0);
    check_double(rig_number("c.jsonl", 2, "lr"), ==, 5e-3);
    check_double(rig_number("c.jsonl", 3, "lr"), ==, 1e-2);
    check_contains(rig_err, "step 4/4");
    check_true(strstr(rig_err, "step 3/4") == NULL);
}

/* Padded and packed rows have the same losses, but for rounding. */
static void packed(void)
{
    static const char rows[] = "{\"input_ids\": [1, 2, 3, 4, 5]}\n{\"input_ids\": [9, 8, 7]}\n"
                               "{\"input_ids\": [5, 5, 6, 6, 7, 7, 8]}\n{\"input_ids\": [3, 1]}\n";
    rig_train_begin();
    test_file("short.jsonl", rows, strlen(rows));
    for (int pack = 0; pack < 2; pack++) {
        char arguments[512];
        snprintf(
            arguments, sizeof arguments,
            "finetune --model %%M --data %%T/short.jsonl --batch 4 --seq-len 10 --steps 3 "
            "--lr 1e-2 --precision fp32 --rates %%T/rates.json --out %%T/p%d --log %%T/p%d.jsonl "
            "%s",
            pack, pack, pack != 0 ? "--pack" : "");
        expect(0, arguments);
    }
    for (size_t line = 0; line < 3; line++) {
        double padded = rig_number("p0.jsonl", line, "loss");
        check_double(fabs(rig_number("p1.jsonl", line, "loss") - padded), <, 1e-5 * padded);
    }
}

/* Rows of text are trained on with the model's tokenizer. */
static void texts(void)
{
    static const char rows[] =
        "{\"text\": \"The drive reads and the drive writes.\"}\n"
        "{\"prompt\": \"What is a tier?\", \"completion\": \" DEVICE, HOST or STORE.\"}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"},"
        " {\"role\": \"assistant\", \"content\": \"there\"}]}\n"
        "{\"instruction\": \"Add.\", \"input\": \"1 2\", \"output\": \"3\"}\n";
    rig_train_begin();
    rig_chat_model();
    test_file("t.jsonl", rows, strlen(rows));
    expect(2, "finetune --model %T/chat/model --data %T/t.jsonl --out %T/x --steps 1 --batch 4");
    check_contains(rig_err, "t.jsonl:3: the model has no chat template");
    expect(2, "finetune --model %T/chat/model --data %T/t.jsonl --out %T/x --steps 1 "
              "--data-memory 1000");
    check_contains(rig_err, "t.jsonl:1: the row has 49 bytes");
    check_contains(rig_err, "needs more than the limit of 1000 bytes");
    check_contains(rig_err, "raise --data-memory");
    expect(2, "plan --model %T/chat/model --data %T/t.jsonl --chat-format letters");
    check_contains(rig_err, "tide plan: --chat-format: unknown format \"letters\"");
    static const char *const flags[] = {"", "--train-on all", "--pack --seq-len 100"};
    for (size_t i = 0; i < 3; i++) {
        char arguments[512];
        snprintf(
            arguments, sizeof arguments,
            "finetune --model %%T/chat/model --data %%T/t.jsonl --chat-format chatml --batch 4 "
            "--steps 8 --lr 1e-2 --overwrite --out %%T/x --log %%T/x.jsonl %s",
            flags[i]);
        expect(0, arguments);
        check_double(rig_number("x.jsonl", 7, "loss"), <, 0.7 * rig_number("x.jsonl", 0, "loss"));
    }
    check_true(rig_has("x/tokenizer.json"));
    /* Rows are made ahead, so some steps find them ready; on a busy machine, others wait. */
    size_t waited = 0;
    expect(0, "finetune --model %T/chat/model --data %T/t.jsonl --chat-format chatml --batch 1 "
              "--accum 3 --steps 24 --overwrite --out %T/x --log %T/x.jsonl");
    for (size_t line = 0; line < 24; line++) {
        waited += rig_number("x.jsonl", line, "wait.data") > 0;
    }
    check_uint(waited, <, 24);
}

/* Two ranks give the losses of one rank with twice as many micro-batches, but for rounding. */
static void ranks(void)
{
    static const char *const flags[] = {"--batch 2 --accum 2", "--batch 2 --ranks 2 --zero 1",
                                        "--batch 2 --ranks 2 --zero 3"};
    rig_train_begin();
    for (size_t i = 0; i < 3; i++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments,
                 "finetune --model %%M --data %%T/d.jsonl %s --steps 4 --lr 1e-2 --precision fp32 "
                 "--rates %%T/rates.json --out %%T/r%zu --log %%T/r%zu.jsonl",
                 flags[i], i, i);
        expect(0, arguments);
    }
    for (size_t line = 0; line < 4; line++) {
        double one = rig_number("r0.jsonl", line, "loss");
        check_double(fabs(rig_number("r1.jsonl", line, "loss") - one), <, 1e-5 * one);
        check_double(fabs(rig_number("r2.jsonl", line, "loss") - one), <, 1e-5 * one);
    }
}

/* An unsuitable --freeze is refused before anything is measured. */
static void frozen_in_part(void)
{
    rig_train_begin();
    expect(2, TRAIN_SMALL "--out %T/none -v --freeze *.k_proj.*");
    check_contains(rig_err,
                   "frozen (--freeze) matches model.layers.0.self_attn.k_proj.weight and not "
                   "model.layers.0.self_attn.q_proj.weight");
    check_true(strstr(rig_err, "measure") == NULL);
    expect(2, TRAIN_SMALL "--out %T/none -v --freeze nothing");
    check_contains(rig_err, "\"nothing\"");
    check_true(strstr(rig_err, "measure") == NULL);
    expect(2, TRAIN_SMALL "--out %T/none -v --freeze *embed* --base int8");
    check_contains(rig_err, "base int8 (--base) is for frozen layers, and no part of a layer");
    check_true(strstr(rig_err, "measure") == NULL);
    rig_end();
}

/* A budget that a refusal offers suffices. */
static void offers_work(void)
{
    static const struct {
        const char *given, *offered;
    } cases[] = {{"--device-memory 64M --host-memory 1M ", "--host-memory "},
                 {"--host-memory 256M --device-memory 4K ", "--device-memory "},
                 {"--device-memory 64M --ranks 2 --zero 3 --host-memory 1M ", "--host-memory "}};
    static const char little[] = TRAIN_SMALL "--out %T/offer --overwrite --steps 1";
    rig_train_begin();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[512];
        snprintf(line, sizeof line, "%s %s", little, cases[i].given);
        expect(3, line);
        const char *any = strstr(rig_err, "any one of: ");
        const char *at = any != NULL ? strstr(any, cases[i].offered) : NULL;
        check_true(at != NULL);
        const unsigned long mib = strtoul(at + strlen(cases[i].offered), NULL, 10);
        test_note("%s%s%luM", cases[i].given, cases[i].offered, mib);
        const int kept = (int)(strstr(cases[i].given, cases[i].offered) - cases[i].given);
        snprintf(line, sizeof line, "%s %.*s %s%luM", little, kept, cases[i].given,
                 cases[i].offered, mib);
        expect(0, line);
    }
    rig_end();
}

/* A model that cannot fit is refused, and no output is left. */
static void too_small(void)
{
    rig_train_begin();
    expect(3, TRAIN_SMALL "--out %T/small --device-memory 4K");
    check_contains(rig_err, "cannot fit");
    check_true(!rig_has("small"));
    expect(3, "plan --model %M --device-memory 4K");
    check_string(rig_out, "");
    expect(3, "plan --model %M --batch 1000000 --device-memory 16M --host-memory 64M");
    check_contains(rig_err, "cannot fit");
    expect(0, "plan --model %M --batch 2");
    check_contains(rig_out, "DEVICE");
    expect(0, "plan --model %M --batch 2 --rates %T/rates.json --json");
    check_contains(rig_out, "\"schema_version\": 1");
    expect(0, "plan --model %M --batch 2 --rates %T/rates.json --tape");
    check_contains(rig_out, "UPDATE");
    rig_end();
}

/* A plan needs only config.json, and names the files that training needs. */
static void config_alone(void)
{
    char path[512];
    char *text = NULL;
    size_t bytes;
    rig_train_begin();
    mkdir(rig_path("bare"), 0700);
    snprintf(path, sizeof path, "%s/model/fixtures/llama/config.json", test_root());
    check_int(core_file_read(path, 1 << 20, &text, &bytes), ==, 0);
    test_file("bare/config.json", text, bytes);
    free(text);
    expect(0, "plan --model %T/bare --batch 2");
    check_contains(rig_out, "DEVICE");
    check_contains(rig_err, "planned from config.json alone; training needs weights: ");
    check_contains(rig_err, "/bare has neither model.safetensors nor ");
    expect(2, "finetune --model %T/bare --data %T/d.jsonl --out %T/barely");
    check_contains(rig_err, "/bare has neither model.safetensors nor ");
    check_true(!rig_has("barely"));
    test_file("bare/config.json", "{}", 2);
    expect(2, "plan --model %T/bare --batch 2");
    check_contains(rig_err, "model_type");
    rig_end();
}

/* A dropout in config.json is not applied, which commands report once. */
static void dropout(void)
{
    static const char zero[] = "\"attention_dropout\": 0.0";
    char path[512];
    char *text = NULL;
    size_t bytes;
    rig_train_begin();
    snprintf(path, sizeof path, "%s/model/fixtures/llama/config.json", test_root());
    check_int(core_file_read(path, 1 << 20, &text, &bytes), ==, 0);
    char *at = strstr(text, zero);
    check_true(at != NULL);
    at[sizeof zero - 2] = '5';
    mkdir(rig_path("dropped"), 0700);
    test_file("dropped/config.json", text, bytes);
    free(text);
    expect(0, "plan --model %T/dropped --batch 2 --threads 2 --rates %T/rates.json");
    const char *said = strstr(rig_err, "dropout is not applied (attention_dropout 0.5)");
    check_true(said != NULL && strstr(said + 1, "dropout is not applied") == NULL);
    expect(0, "plan --model %M --batch 2 --threads 2 --rates %T/rates.json");
    check_true(strstr(rig_err, "dropout") == NULL);
    rig_end();
}

/* A small stack limit is enough: the command runs in a thread with a larger stack. */
static void small_stack(void)
{
    char command[2048];
    rig_train_begin();
    const char *root = getenv("TIDE_BUILD_ROOT");
    snprintf(
        command, sizeof command,
        "cd '%s' && ulimit -s 64 && '%s/tools/tide' finetune --model '%s/model/fixtures/llama' "
        "--data d.jsonl --out stacked --steps 1 --threads 2 --rates rates.json -q "
        ">stacked.txt 2>&1",
        test_directory(), root != NULL ? root : "build", test_root());
    check_int(system(command), ==, 0);
    check_true(rig_has("stacked/config.json"));
    rig_end();
}

/* TIDE_ISA limits the instruction sets; an unknown name is reported. */
static void instruction_sets(void)
{
    rig_train_begin();
    expect_with(0, "TIDE_ISA=scalar", "--version");
    check_contains(rig_out, "instructions: none");
    expect_with(0, "TIDE_ISA=scalar", TRAIN_SMALL "--out %T/scalar --steps 2");
    expect_with(0, "TIDE_ISA=avx2", TRAIN_SMALL "--out %T/avx2 --steps 2");
    expect_with(0, "TIDE_ISA=sse5", TRAIN_SMALL "--out %T/sse5 --steps 2");
    check_contains(rig_err, "TIDE_ISA is \"sse5\", expected one of scalar, avx2, ");
    rig_end();
}

/* A plan runs under valgrind and reads only initialised bytes. */
static void under_valgrind(void)
{
    char command[2048];
    if (TEST_SLOW || system("valgrind --version >/dev/null 2>&1") != 0) {
        test_skip(TEST_SLOW ? "a sanitizer and valgrind exclude each other"
                            : "valgrind is not installed");
    }
    rig_train_begin();
    const char *root = getenv("TIDE_BUILD_ROOT");
    snprintf(command, sizeof command,
             "cd '%s' && valgrind -q --error-exitcode=99 '%s/tools/tide' plan --model "
             "'%s/model/fixtures/llama' --batch 1 --seq-len 8 --threads 1 --rates rates.json "
             ">valgrind.txt 2>&1",
             test_directory(), root != NULL ? root : "build", test_root());
    const int status = system(command);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        test_fail(__FILE__, __LINE__, "status %x: %s", (unsigned)status, rig_read("valgrind.txt"));
    }
    rig_end();
}

/* An output folder may end in "/.", or be a link to a folder. */
static void here(void)
{
    rig_train_begin();
    check_int(mkdir(rig_path("dot"), 0700), ==, 0);
    expect(0, TRAIN_SMALL "--out %T/dot/. --steps 1 -q");
    check_true(rig_has("dot/model.safetensors") && !rig_has("dot.partial"));
    expect(2, TRAIN_SMALL "--out %T/dot/. --steps 1 -q");
    check_contains(rig_err, "dot exists and is not empty");
    check_int(mkdir(rig_path("far"), 0700), ==, 0);
    check_int(symlink("far", rig_path("link")), ==, 0);
    expect(0, TRAIN_SMALL "--out %T/link/ --steps 1 -q");
    check_true(rig_has("far/model.safetensors") && !rig_has("link.partial"));
    check_int(symlink("nowhere", rig_path("dangling")), ==, 0);
    expect(2, TRAIN_SMALL "--out %T/dangling --steps 1 -q");
    check_contains(rig_err, "--out ");
    rig_end();
}

TEST_MAIN({"here", here}, {"small_stack", small_stack}, {"instruction_sets", instruction_sets},
          {"under_valgrind", under_valgrind}, {"anywhere", anywhere}, {"kinds", kinds},
          {"config", config}, {"packed", packed}, {"texts", texts}, {"ranks", ranks},
          {"frozen_in_part", frozen_in_part}, {"too_small", too_small},
          {"offers_work", offers_work}, {"config_alone", config_alone}, {"dropout", dropout})
