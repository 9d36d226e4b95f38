/* `tide finetune` with the real engine and a tiny Llama: the result does not depend on the
 * placement, nothing is left behind, and mistakes with stores and signals are handled. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/json/json.h"
#include "tests/finetune/rig.h"
#include "tests/harness/test.h"

static size_t entries(const char *name)
{
    size_t count = 0;
    DIR *folder = opendir(rig_path(name));
    check_true(folder != NULL);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        count += entry->d_name[0] != '.';
    }
    closedir(folder);
    return count;
}

/* A number in a line of a log. */
static double number_of(const char *log, size_t line, const char *key)
{
    char *text = strdup(rig_read(log));
    char *rest = text;
    char *at = strsep(&rest, "\n");
    for (size_t i = 0; i < line; i++) {
        at = strsep(&rest, "\n");
    }
    struct core_json *doc = NULL;
    check_true(at != NULL);
    check_int(core_json_parse(at, strlen(at), log, NULL, &doc), ==, 0);
    double value = core_json_real(core_json_find(core_json_root(doc), key));
    core_json_destroy(doc);
    free(text);
    return value;
}

static double data_wait(const char *log, size_t line)
{
    char *text = strdup(rig_read(log));
    char *at = text;
    for (size_t i = 0; i < line && at != NULL; i++) {
        at = strchr(at, '\n');
        at += at != NULL;
    }
    at = at != NULL ? strstr(at, "\"data\":") : NULL;
    check_true(at != NULL);
    const double value = strtod(at + 7, NULL);
    free(text);
    return value;
}

/* A run with everything in memory and one with everything on the drive end with the same bytes; the
 * loss falls; the store is empty afterwards; the output has all files. */
static void anywhere(void)
{
    rig_train_begin();
    expect(0, TRAIN_SMALL "--out %T/memory --epochs 4 --log %T/memory.jsonl");
    expect(0, TRAIN_SMALL "--out %T/drive --epochs 4 --log %T/drive.jsonl --store %T/store "
                          "--place weights=store,states=store,acts=recompute");
    rig_same_model("memory", "drive");
    check_true(rig_has("drive/config.json") && rig_has("drive/generation_config.json"));
    check_uint(entries("store"), ==, 0);
    check_double(number_of("drive.jsonl", 7, "loss"), <, 0.5 * number_of("drive.jsonl", 0, "loss"));
    check_double(number_of("drive.jsonl", 3, "store_write_bytes"), >, 0);
    check_double(number_of("memory.jsonl", 3, "store_write_bytes"), ==, 0);
    check_double(number_of("drive.jsonl", 8, "plan_host_gb"), >, 0);
}

/* A resumed run, with shuffled rows and another store, ends with the same bytes. Its log has every
 * step once; other folders in the output and the model beside them stay. */
static void resumed(void)
{
    rig_train_begin();
#define SHUFFLED TRAIN_SMALL "--shuffle --seed 5 --schedule linear "
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
}

/* OneCycle of a ds_config.json moves the first beta with the rate: the model differs from that of a cycle with constant
 * betas, and a resumed run continues with the betas of its step. */
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
#undef CYCLED
}

/* The loss falls with each precision, optimizer and kind of moments. */
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
        double first = number_of("k.jsonl", 0, "loss");
        double last = number_of("k.jsonl", 5, "loss");
        if (!(last < first)) {
            test_fail(__FILE__, __LINE__, "%s: %g -> %g", flags[i], first, last);
        }
    }
}

/* Trains with the settings of a ds_config.json. */
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
    check_double(number_of("c.jsonl", 1, "lr"), ==, 0);
    check_double(number_of("c.jsonl", 2, "lr"), ==, 5e-3);
    check_double(number_of("c.jsonl", 3, "lr"), ==, 1e-2);
    check_contains(rig_err, "step 4/4");
    check_true(strstr(rig_err, "step 3/4") == NULL);
}

/* A store or output folder that another run uses is refused and left to that run; so is a store
 * that cannot be created. */
static void shared_store(void)
{
    rig_train_begin();
    int first = rig_start(NULL, TRAIN_SMALL "--out %T/first --steps 1000000 --store %T/store "
                                            "--place states=store --log %T/first.jsonl -q");
    for (int i = 0; i < 600 && (!rig_has("first.jsonl") || rig_read("first.jsonl")[0] == '\0');
         i++) {
        usleep(50000);
    }
    check_true(rig_read("first.jsonl")[0] != '\0');
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
    check_uint(entries("store"), ==, 0);
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

/* The planner counts the limits of several stores as the stores do: only whole extents on each. */
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
    for (int cut = 0; cut < 2; cut++) { /* several stores keep a MiB each for their ends */
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

/* The store of a killed run is removed when the run is resumed without a store. */
static void killed_store(void)
{
    rig_train_begin();
    int first = rig_start(NULL, TRAIN_SMALL "--out %T/killed --steps 1000000 --store %T/store "
                                            "--place states=store --log %T/killed.jsonl -q");
    for (int i = 0; i < 600 && (!rig_has("killed.jsonl") || rig_read("killed.jsonl")[0] == '\0');
         i++) {
        usleep(50000);
    }
    check_uint(entries("store"), ==, 1);
    kill(first, SIGKILL);
    (void)rig_wait(first);
    check_uint(entries("store"), ==, 1);
    expect(0, TRAIN_SMALL "--out %T/killed --steps 2 --resume");
    check_uint(entries("store"), ==, 0);
    check_true(rig_has("killed/model.safetensors") && !rig_has("killed.partial"));
}

/* Rows of different lengths give the same training whether they are padded or packed. */
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
        double padded = number_of("p0.jsonl", line, "loss");
        check_double(fabs(number_of("p1.jsonl", line, "loss") - padded), <, 1e-5 * padded);
    }
}

/* Makes chat/model: a small Llama whose tokenizer reads any text. */
static void chat_model(void)
{
    char path[512];
    char *tokenizer = NULL;
    size_t bytes = 0;
    rig_program = "tools/tide_make_case";
    expect(0,
           "%T/chat --hidden 64 --layers 1 --heads 4 --kv-heads 2 --inner 64 --vocab 768 --rows 1");
    rig_program = "tools/tide";
    snprintf(path, sizeof path, "%s/text/fixtures/gpt2.json", test_root());
    check_int(core_file_read(path, 1 << 22, &tokenizer, &bytes), ==, 0);
    test_file("chat/model/tokenizer.json", tokenizer, bytes);
    free(tokenizer);
}

/* Writes 1,200 different rows of text, of 1 to 9 words; that is more than one window of packing. */
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

/* A run over packed and shuffled text is stopped in the middle of an epoch, of a packing window and
 * of a file, and again in a later epoch. It continues with exactly the next rows: losses, norms and
 * the model are the same. Under a sanitizer one kind of rows: the feed's own tests have all. */
static void resumed_texts(void)
{
    static const char *const flags[] = {"--pack --shuffle --seed 9", "--pack --split --accum 2",
                                        "--shuffle --seed 4 --train-on all"};
    static const char *const places[] = {"", "--store %T/store --place weights=store,states=store"};
    rig_train_begin();
    chat_model();
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
            const size_t summaries = (size_t)(step >= 7) +
                                     (size_t)(step >= 26); /* of earlier parts */
            check_double(number_of("t1.jsonl", step + summaries, "loss"), ==,
                         number_of("t0.jsonl", step, "loss"));
            check_double(number_of("t1.jsonl", step + summaries, "grad_norm"), ==,
                         number_of("t0.jsonl", step, "grad_norm"));
        }
        rig_same_model("t0", "t1");
        rig_remove("t1");
        check_int(unlink(rig_path("t1.jsonl")), ==, 0);
    }
}

/* Rows of text need only the model's tokenizer; what is trained on can be chosen. */
static void texts(void)
{
    static const char rows[] =
        "{\"text\": \"The drive reads and the drive writes.\"}\n"
        "{\"prompt\": \"What is a tier?\", \"completion\": \" DEVICE, HOST or STORE.\"}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"},"
        " {\"role\": \"assistant\", \"content\": \"there\"}]}\n"
        "{\"instruction\": \"Add.\", \"input\": \"1 2\", \"output\": \"3\"}\n";
    rig_train_begin();
    chat_model();
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
        check_double(number_of("x.jsonl", 7, "loss"), <, 0.7 * number_of("x.jsonl", 0, "loss"));
    }
    check_true(rig_has("x/tokenizer.json"));
    /* Rows are ready before a step asks for them; now and then another program may delay them. */
    size_t waited = 0;
    expect(0, "finetune --model %T/chat/model --data %T/t.jsonl --chat-format chatml --batch 1 "
              "--accum 3 --steps 24 --overwrite --out %T/x --log %T/x.jsonl");
    for (size_t line = 0; line < 24; line++) {
        waited += data_wait("x.jsonl", line) > 0;
    }
    check_uint(waited, <=, 6);
}

/* Two ranks with one row each learn what one rank learns with two micro-batches, also at the short
 * end of an epoch. */
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
        double one = number_of("r0.jsonl", line, "loss");
        check_double(fabs(number_of("r1.jsonl", line, "loss") - one), <, 1e-5 * one);
        check_double(fabs(number_of("r2.jsonl", line, "loss") - one), <, 1e-5 * one);
    }
}

/* Patterns of --freeze that would freeze only a part or match nothing are refused before anything
 * is measured; the message names the pattern. */
static void frozen_in_part(void)
{
    rig_train_begin();
    expect(2, TRAIN_SMALL "--out %T/none -v --freeze *.k_proj.*");
    check_contains(rig_err, "--freeze matches model.layers.0.self_attn.k_proj.weight and not "
                            "model.layers.0.self_attn.q_proj.weight");
    check_true(strstr(rig_err, "measure") == NULL);
    expect(2, TRAIN_SMALL "--out %T/none -v --freeze nothing");
    check_contains(rig_err, "\"nothing\"");
    check_true(strstr(rig_err, "measure") == NULL);
    expect(2, TRAIN_SMALL "--out %T/none -v --freeze *embed* --base int8");
    check_contains(rig_err, "--base int8 is for frozen layers, and no part of a layer");
    check_true(strstr(rig_err, "measure") == NULL);
    rig_end();
}

/* The budget that a refusal offers for one tier suffices, with the other budgets unchanged. */
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

/* A model that cannot fit exits with 3, and the message names what would suffice; nothing is left,
 * not even the folder. */
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

/* A plan needs only config.json, and says what is missing for training; a run needs the weights. */
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

/* A dropout in config.json is not applied; commands report that once. */
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

/* An output folder belongs to a run from before it reads rows; a run that comes meanwhile leaves
 * nothing. A signal before the first step ends a run at once, as any other. The test closes the
 * pipe after the signal because TSan runs a handler only once read() has returned. */
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

/* On resume, a given loss scale overrides that of the checkpoint. The checkpoint's number of
 * threads is used if the number of ranks and of processors is the same; otherwise a message says
 * that bits differ. */
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
    check_double(number_of("fp16.jsonl", 0, "loss_scale"), ==, 256);
#define LONE                                                                                       \
    "finetune --model %M --data %T/d.jsonl --rates %T/rates.json --out %T/lone --save-every 2 "
    snprintf(arguments, sizeof arguments, "%s--steps 2 --threads %ld", LONE,
             sysconf(_SC_NPROCESSORS_ONLN) + 3);
    expect(0, arguments);
    expect(0, LONE "--steps 4 --resume");
    check_contains(rig_err, "threads was ");
    check_contains(rig_err, "results will not be identical");
    expect(0, LONE "--steps 6 --resume --threads 1");
    expect(0, LONE "--steps 8 --resume"); /* with the single thread of the checkpoint */
    check_true(strstr(rig_err, "threads was ") == NULL);
    expect(0, LONE "--steps 10 --resume --ranks 2");
    check_contains(rig_err, "ranks was 1 before this run was resumed and is 2 now");
    rig_end();
}

/* A stack of 64 KiB is enough, because threads set the size of their stacks. */
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

/* A limit on file sizes is an error of the system: exit code 1 wherever it is reached, and not 3,
 * which means that no plan fits. */
static void file_size_limit(void)
{
    static const char *const stores[] = {
        "", "--store limited:1G --make-store --place states=store --io threads",
        /* a file of rates has no speeds of several drives, so these are measured */
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

static void wait_for_a_line(const char *name)
{
    for (int i = 0; i < 2400 && (!rig_has(name) || rig_read(name)[0] == '\0'); i++) {
        usleep(50000);
    }
    check_true(rig_read(name)[0] != '\0');
}

/* A closed terminal ends a run like SIGTERM, with a checkpoint. Signals that were ignored at its
 * start (by nohup, or in a shell's background) stay ignored. */
static void hung_up_and_ignored(void)
{
    rig_train_begin();
    int run = rig_start(NULL, TRAIN_SMALL "--out %T/hung --steps 1000000 --log %T/hung.jsonl -q");
    wait_for_a_line("hung.jsonl");
    kill(run, SIGHUP);
    rig_expect(__LINE__, rig_wait(run), 130);
    check_contains(rig_err, "--resume continues from there");
    run = start_ignoring((const int[]){SIGINT, SIGHUP},
                         TRAIN_SMALL "--out %T/away --steps 1000000 --log %T/away.jsonl -q");
    wait_for_a_line("away.jsonl");
    kill(run, SIGINT);
    kill(run, SIGHUP);
    const size_t seen = strlen(rig_read("away.jsonl"));
    for (int i = 0; i < 2400 && strlen(rig_read("away.jsonl")) <= seen + 1000; i++) {
        usleep(50000); /* after several more steps it still runs */
    }
    check_int(waitpid(run, NULL, WNOHANG), ==, 0);
    kill(run, SIGTERM);
    rig_expect(__LINE__, rig_wait(run), 130);
    rig_remove("hung");
    rig_remove("away");
    rig_end();
}

/* TIDE_ISA excludes instructions in every part of the library; an unknown name is reported. */
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

/* Nothing needs an instruction that valgrind does not know, and a plan reads only initialised
 * bytes. */
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

/* Neither --resume nor --overwrite touches the user's files in --out, or files that the run was
 * told to write there. If they would have to replace a file that is not the run's, that is refused. */
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
    /* A finished run says that it is finished, and keeps the last line of its log. */
    expect(0, TRAIN_SMALL "--out %T/twice --steps 2 --save-every 1 -q --log %T/twice.jsonl");
    char *log = strdup(rig_read("twice.jsonl"));
    check_true(log != NULL);
    expect(0, TRAIN_SMALL "--out %T/twice --steps 2 --resume --log %T/twice.jsonl");
    check_contains(rig_err, "the run is already finished, after step 2 of 2: nothing was trained");
    check_true(strstr(rig_err, "measured") == NULL && strstr(rig_err, "tokens/s\n") == NULL);
    check_string(rig_read("twice.jsonl"), log);
    free(log);
    expect(0, TRAIN_SMALL "--out %T/v --steps 1 -q");
    expect(0, TRAIN_SMALL "--out %T/v --steps 2 --resume"); /* from the beginning */
    check_contains(rig_err, "no checkpoint in ");
    expect(2, TRAIN_SMALL "--out %T/v --steps 1 --resume -q");
    check_contains(rig_err, "--steps 1, but the model in ");
    mkdir(rig_path("w"), 0700);
    expect(0, TRAIN_SMALL "--out %T/w --steps 2 --save-every 1 -q");
    test_file("w/tokenizer.json", "changed by hand", 15);
    expect(2, "finetune --model %T/mt --data %T/d.jsonl --batch 2 --out %T/w --steps 3 --resume");
    check_contains(rig_err, "the file tokenizer.json in it is not a copy");
    check_string(rig_read("w/tokenizer.json"), "changed by hand");
    rig_end();
}

/* --resume replaces a model only if this run has written it and it is unchanged, and never by an
 * older one. */
static void model_of_another(void)
{
    static const char *const names[] = {"config.json", "model.safetensors",
                                        "model-00001-of-00002.safetensors",
                                        "model.safetensors.index.json"};
    char line[3000];
    rig_train_begin();
    expect(0, TRAIN_SMALL "--out %T/mine --steps 2 --save-every 1 -q");
    for (int noted = 0; noted < 2; noted++) {
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
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
    /* A model of another run, with its .tide-model; and a model without one and without
     * checkpoints. */
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
    /* A copy without the times counts as the same model; one with a changed byte does not. */
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
    /* The model was trained further than the checkpoint: it stays. */
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
    expect(2, TRAIN_SMALL "--out %T/q --steps 1 --resume -q");
    check_contains(rig_err, "/q/checkpoint-2 is after step 2");
    rig_same_model("q", "copy");
    /* A model whose files are missing is written again. */
    check_int(unlink(rig_path("q/config.json")), ==, 0);
    expect(0, TRAIN_SMALL "--out %T/q --steps 2 --resume -q");
    check_true(rig_has("q/config.json"));
    rig_end();
}

/* "." is the folder that it means. */
static void here(void)
{
    char line[3000];
    rig_train_begin();
    snprintf(line, sizeof line,
             "mkdir '%s/dot' && cp -r '%s/model/fixtures/llama' '%s/mt' && chmod -R u+w '%s/mt' && "
             "echo '{}' >'%s/mt/tokenizer.json'",
             test_directory(), test_root(), test_directory(), test_directory(), test_directory());
    check_int(system(line), ==, 0);
    expect(0, TRAIN_SMALL "--out %T/dot/. --steps 1 -q");
    check_true(rig_has("dot/model.safetensors") && !rig_has("dot.partial"));
    expect(2, TRAIN_SMALL "--out %T/dot/. --steps 1 -q");
    check_contains(rig_err, "dot exists and is not empty");
    /* A link is the folder that it points to, for example one on a larger drive. */
    check_int(mkdir(rig_path("far"), 0700), ==, 0);
    check_int(symlink("far", rig_path("link")), ==, 0);
    expect(0, TRAIN_SMALL "--out %T/link/ --steps 1 -q");
    check_true(rig_has("far/model.safetensors") && !rig_has("link.partial"));
    check_int(symlink("nowhere", rig_path("dangling")), ==, 0);
    expect(2, TRAIN_SMALL "--out %T/dangling --steps 1 -q");
    check_contains(rig_err, "--out ");
    rig_end();
}

/* A chat template that writes the time gets, in a resumed run, the time at which the first part
 * began: losses and model are those of a run without an interruption, whatever the clock says. */
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
    chat_model();
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
    check_true(number_of("c2.jsonl", 3, "loss") != number_of("c0.jsonl", 3, "loss"));
    check_double(number_of("c1.jsonl", 4, "loss"), ==, number_of("c0.jsonl", 3, "loss"));
    check_int(unlink(rig_path("chat/model/tokenizer_config.json")), ==, 0);
}

TEST_MAIN({"here", here}, {"files_of_the_user", files_of_the_user},
          {"resumed_otherwise", resumed_otherwise}, {"small_stack", small_stack},
          {"file_size_limit", file_size_limit}, {"instruction_sets", instruction_sets},
          {"under_valgrind", under_valgrind}, {"anywhere", anywhere},
          {"stopped_at_once", stopped_at_once}, {"hung_up_and_ignored", hung_up_and_ignored},
          {"resumed", resumed}, {"cycled_betas", cycled_betas},
          {"model_of_another", model_of_another}, {"kinds", kinds}, {"config", config},
          {"packed", packed}, {"resumed_texts", resumed_texts}, {"resumed_clock", resumed_clock},
          {"texts", texts}, {"ranks", ranks}, {"shared_store", shared_store},
          {"limited_stores", limited_stores}, {"killed_store", killed_store},
          {"frozen_in_part", frozen_in_part}, {"too_small", too_small},
          {"offers_work", offers_work}, {"config_alone", config_alone}, {"dropout", dropout})
