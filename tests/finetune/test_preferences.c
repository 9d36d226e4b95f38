/* Tests `tide finetune --loss dpo` with the real engine and a tiny Llama. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/finetune/rig.h"
#include "tests/harness/test.h"

#define LOUD                                                                                       \
    "finetune --model %T/pairs/model --data %T/pairs.jsonl --lora 4 --loss dpo --lr 1e-2 "         \
    "--batch 2 --threads 2 --rates %T/rates.json "
#define PAIRS LOUD "-q "

/* New adapters change nothing: the loss begins at log 2. Later, chosen answers have larger
 * rewards. */
static void learns(void)
{
    rig_train_begin();
    rig_make_pairs();
    expect(0, PAIRS "--accum 3 --steps 6 --out %T/learns --log %T/log.jsonl --eval-data "
                    "%T/pairs.jsonl --eval-every 6");
    check_double(fabs(rig_number("log.jsonl", 0, "loss") - log(2)), <, 1e-6);
    check_double(rig_number("log.jsonl", 0, "reward_chosen"), ==, 0);
    check_double(rig_number("log.jsonl", 0, "reward_rejected"), ==, 0);
    check_double(rig_number("log.jsonl", 0, "reward_accuracy"), ==, 0);
    check_double(rig_number("log.jsonl", 0, "grad_norm"), >, 0);
    check_double(rig_number("log.jsonl", 5, "loss"), <, 0.65);
    check_double(rig_number("log.jsonl", 5, "reward_margin"), >, 0.05);
    check_double(rig_number("log.jsonl", 5, "reward_accuracy"), ==, 1);
    check_double(rig_number("log.jsonl", 5, "eval_loss"), <, rig_number("log.jsonl", 5, "loss"));
    check_double(rig_number("log.jsonl", 5, "eval_reward_margin"), >,
                 rig_number("log.jsonl", 5, "reward_margin"));
    check_double(rig_number("log.jsonl", 5, "eval_reward_accuracy"), ==, 1);
    check_contains(rig_read("learns/adapter_config.json"), "\"r\": 4");
    expect(0, "finetune --model %T/pairs/model --data %T/pairs.jsonl --adapter %T/learns --loss "
              "dpo --batch 2 --threads 2 "
              "--rates %T/rates.json --accum 3 --steps 1 --out %T/more --log %T/more.jsonl");
    check_contains(rig_err, "(--loss dpo): the reference is ");
    check_double(rig_number("more.jsonl", 0, "reward_margin"), >=,
                 rig_number("log.jsonl", 5, "reward_margin"));
    check_double(rig_number("more.jsonl", 0, "loss"), <, rig_number("log.jsonl", 5, "loss"));
    expect(0, "plan --model %T/pairs/model --data %T/pairs.jsonl --lora 4 --loss dpo --batch 2 "
              "--rates %T/rates.json --json");
    check_contains(rig_out, "\"loss\": \"dpo\"");
    expect(0, "plan --model %T/pairs/model --data %T/pairs.jsonl --lora 4 --loss dpo --batch 2 "
              "--rates %T/rates.json");
    check_contains(rig_out, "1 x 2 pairs of rows of ");
    check_contains(rig_out, " tokens per pair on average");
    rig_end();
}

/* The adapters do not depend on the placement or an interruption; ranks change the loss little. */
static void same_results(void)
{
    rig_train_begin();
    rig_make_pairs();
#define SHUFFLED PAIRS "--shuffle --steps 3 "
    expect(0, SHUFFLED "--accum 2 --out %T/memory --log %T/memory.jsonl");
    expect(0, SHUFFLED "--accum 2 --out %T/drive --store %T/store "
                       "--place weights=store,states=store,acts=recompute");
    rig_same_adapter("memory", "drive");
    expect(0, PAIRS "--shuffle --accum 2 --out %T/parts --steps 2 --save-every 1");
    expect(0, SHUFFLED "--accum 2 --out %T/parts --save-every 1 --resume");
    rig_same_adapter("memory", "parts");
    expect(0, LOUD "--shuffle --steps 4 --accum 2 --out %T/parts --save-every 1 --resume "
                   "--beta 0.25");
    check_contains(rig_err, "beta was 0.10000000000000001 before this run was resumed and is 0.25");
    expect(0, SHUFFLED "--ranks 2 --zero 3 --out %T/ranks --log %T/ranks.jsonl");
    for (size_t step = 0; step < 3; step++) {
        const double one = rig_number("memory.jsonl", step, "loss");
        check_double(fabs(rig_number("ranks.jsonl", step, "loss") - one), <, 1e-2 * one);
        check_double(fabs(rig_number("ranks.jsonl", step, "reward_margin") -
                          rig_number("memory.jsonl", step, "reward_margin")),
                     <, 1e-2);
    }
    rig_end();
}

/* Bits depend on the tokens for which a pair has room; a resumed run keeps that number or reports
 * the new one. */
static void room_of_a_pair(void)
{
    static const char longer[] = "{\"prompt\": \"a b c d e f\", \"chosen\": \"g h i j k l m n o "
                                 "p\", \"rejected\": \"q r s t u v w x\"}\n";
    rig_train_begin();
    rig_make_pairs();
    test_file("longer.jsonl", longer, strlen(longer));
#define ROOM   LOUD "--save-every 1 --seq-len "
#define LONGER "--eval-data %T/longer.jsonl --eval-every 9 "
    expect(0, ROOM "16 " LONGER "--steps 4 --out %T/room");
    expect(0, ROOM "16 " LONGER "--steps 2 --out %T/kept");
    expect(0, ROOM "16 --steps 4 --out %T/kept --resume");
    check_true(strstr(rig_err, "pair_length") == NULL);
    rig_same_adapter("room", "kept");
    expect(0, ROOM "16 --steps 2 --out %T/grown");
    expect(0, ROOM "16 " LONGER "--steps 4 --out %T/grown --resume");
    check_contains(rig_err, "pair_length was 16 before this run was resumed and is ");
    expect(0, LOUD "--seq-len 8 --steps 3 --out %T/cut");
    check_contains(rig_err, "3 of 5 pairs are cut to 8 tokens for each answer; a larger --seq-len");
    rig_end();
}

/* Rows that do not fit --loss, and an adapter with whole modules, are refused before anything is
 * written. */
static void refused(void)
{
    static const struct {
        const char *arguments;
        const char *says;
    } cases[] = {
        {"--loss dpo --data %T/texts.jsonl", "texts.jsonl:1: the row has no chosen and rejected"},
        {"--loss dpo --data %T/pairs.jsonl --eval-data %T/texts.jsonl",
         "texts.jsonl:1: the row has no chosen and rejected"},
        {"--data %T/pairs.jsonl", "pairs.jsonl:1: the row has chosen and rejected, which need"},
        {"--loss dpo --data %T/pairs.jsonl --adapter %T/whole",
         "has whole modules (modules_to_save), which the loss of pairs (--loss dpo)"},
    };
    rig_train_begin();
    rig_make_pairs();
    expect(0, "finetune --model %T/pairs/model --data %T/texts.jsonl --lora 4 --modules-to-save "
              "model.norm --steps 1 "
              "--threads 2 --rates %T/rates.json --out %T/whole -q");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char words[400];
        snprintf(words, sizeof words,
                 "finetune --model %%T/pairs/model --lora 4 --steps 1 --rates %%T/rates.json --out "
                 "%%T/never %s",
                 cases[i].arguments);
        expect(2, words);
        check_contains(rig_err, cases[i].says);
        check_true(!rig_has("never"));
    }
    rig_end();
}

TEST_MAIN({"learns", learns}, {"same_results", same_results}, {"room_of_a_pair", room_of_a_pair},
          {"refused", refused})
