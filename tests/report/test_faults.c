/* A failed allocation in `tide report` is an error and leaks nothing. */
#include <stdio.h>

#include "core/base/err.h"
#include "tests/harness/fail_alloc.h"
#include "tests/harness/test.h"
#include "tools/report/log.h"
#include "tools/report/page.h"
#include "tools/report/run.h"

static const char *path;
static FILE *sink;

static int read_once(void)
{
    struct report_run run;
    int rc = report_log_read(path, &run);
    if (rc == 0) {
        rc = report_page_write(sink, &run);
        report_run_fini(&run);
    }
    return rc;
}

static void short_of_memory(void)
{
    static const char text[] =
        "{\"step\":1,\"run\":{\"clip\":1},\"plan\":{\"parts\":[{\"bytes\":1}]}}\n"
        "{\"step\":1}\n{\"median_seconds\":1}\n";
    sink = fopen("/dev/null", "we");
    check_true(sink != NULL);
    path = test_file("f.jsonl", text, sizeof text - 1);
    check_int(read_once(), ==, 0);
    check_uint(test_fail_nth(read_once), >=, 8);
    fclose(sink);
}

TEST_MAIN({"short_of_memory", short_of_memory})
