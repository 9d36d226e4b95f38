/* Tests sizes, suggestions and quoting. */
#include <errno.h>

#include "core/base/err.h"
#include "core/base/quote.h"
#include "core/base/size.h"
#include "core/base/suggest.h"
#include "tests/harness/test.h"

/* A size in any notation gives its exact bytes; text that is not a size is refused. */
static void sizes(void)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"4096", 4096},
        {"512K", 524288},
        {"1M", 1048576},
        {"24GiB", UINT64_C(24) << 30},
        {"24GB", UINT64_C(24000000000)},
        {"1.5G", UINT64_C(3) << 29},
        {"2T", UINT64_C(2) << 40},
        {"3kB", 3000},
        {"7 MiB", UINT64_C(7) << 20},
        {"100B", 100},
        {"15EiB", UINT64_C(15) << 60},
        {"18446744073709551615", UINT64_MAX},
    };
    static const char *const bad[] = {"",      "K",
                                      "-1",    "1X",
                                      "1.5",   "0x10",
                                      "1KiBs", "1..5",

                                      "16EiB", "1e9",
                                      "5.G",   "1 2",
                                      " 1",    "18446744073709551616",
                                      "1BB",   "1.3K",
                                      "nan",   "99999999999999E"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        uint64_t bytes = 1;
        if (core_size_parse(good[i].text, &bytes) != 0 || bytes != good[i].bytes) {
            test_fail(__FILE__, __LINE__, "%s is %" PRIu64, good[i].text, bytes);
        }
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t bytes = 77;
        if (core_size_parse(bad[i], &bytes) != -EINVAL || bytes != 77) {
            test_fail(__FILE__, __LINE__, "\"%s\" is taken as %" PRIu64, bad[i], bytes);
        }
        check_contains(core_err_message(), bad[i]);
    }
    char text[32];
    check_string(core_size_print(0, text, sizeof text), "0 B");
    check_string(core_size_print(1536, text, sizeof text), "1.5 KiB");
    check_string(core_size_print(UINT64_C(24) << 30, text, sizeof text), "24.0 GiB");
}

/* Distances count edits; words that differ too much are not suggested. */
static void guesses(void)
{
    check_int(core_suggest_distance("stage", "stage"), ==, 0);
    check_int(core_suggest_distance("stge", "stage"), ==, 1);
    check_int(core_suggest_distance("satge", "stage"), ==, 1);
    check_int(core_suggest_distance("Stage", "stage"), ==, 0);
    check_int(core_suggest_distance("", "abc"), ==, 3);
    check_int(core_suggest_distance("kitten", "sitting"), ==, 3);
    check_int(core_suggest_distance("abc", ""), ==, 3);
    struct core_suggest guess;
    core_suggest_init(&guess, "queue_dept");
    core_suggest_offer(&guess, "block_size");
    check_string(core_suggest_text(&guess), "");
    core_suggest_offer(&guess, "queue_depth");
    core_suggest_offer(&guess, "queue_death");
    check_string(core_suggest_text(&guess), " (did you mean queue_depth?)");
    char longest[200];
    memset(longest, 'x', sizeof longest - 1);
    longest[199] = '\0';
    check_int(core_suggest_distance(longest, "x"), ==, 62);
}

/* A quoted text is one word of a shell; a long text becomes '...'. */
static void quotes(void)
{
    char out[CORE_QUOTE_BYTES];
    check_string(core_quote("/a b", out), "'/a b'");
    check_string(core_quote("it's", out), "'it'\\''s'");
    check_string(core_quote("-x", out), "'./-x'");
    check_string(core_quote("", out), "''");
    char longest[CORE_QUOTE_BYTES];
    memset(longest, '\'', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    check_string(core_quote(longest, out), "'...'");
    memset(longest, 'x', sizeof longest - 1);
    longest[CORE_QUOTE_BYTES - 3] = '\0';
    check_uint(strlen(core_quote(longest, out)), ==, CORE_QUOTE_BYTES - 1);
}

TEST_MAIN({"sizes", sizes}, {"guesses", guesses}, {"quotes", quotes})
