/* test_context.c: the beginning and the end of public functions. */
#include <errno.h>
#include <tide/tide.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "offload/api/context.h"
#include "tests/harness/test.h"

static int lines;
static int asked;

static void count_line(void *user, uint32_t level, const char *line)
{
    (void)user;
    (void)level;
    lines += strcmp(line, "hello") == 0;
}

static int stop(void *user, const struct tide_progress *progress)
{
    (void)user;
    asked++;
    return progress->done == 1 && progress->total == 2;
}

/* Between enter and leave, a thread logs to the context. */
static void binding(void)
{
    struct tide_context *context = NULL;
    struct tide_context_options options = {
        .struct_bytes = sizeof options, .log_level = TIDE_LOG_INFO, .log = count_line};
    check_int(tide_context_create(&options, &context), ==, 0);
    const struct core_log outer = {0};
    core_log_bind(&outer);
    const struct context_before before = context_enter(context);
    check_true(before.log == &outer);
    core_log(CORE_LOG_INFO, "hello");
    core_log(CORE_LOG_DEBUG, "hello");
    context_leave(&before);
    check_true(core_log_bound() == &outer);
    check_int(lines, ==, 1);
    const struct context_before again = context_enter(NULL);
    context_leave(&again);
    check_true(core_log_bound() == &outer);
    core_log_bind(NULL);
    tide_context_destroy(context);
}

/* Progress asks the application whether to continue. */
static void progress(void)
{
    struct tide_context *context = NULL;
    struct tide_context_options options = {.struct_bytes = sizeof options, .progress = stop};
    check_int(context_progress(NULL, "sort", 1, 2), ==, 0);
    check_int(tide_context_create(&options, &context), ==, 0);
    check_int(context_progress(context, "sort", 0, 2), ==, 0);
    check_int(context_progress(context, "sort", 1, 2), ==, -ECANCELED);
    check_contains(core_err_message(), "\"sort\"");
    check_int(asked, ==, 2);
    tide_context_destroy(context);
}

TEST_MAIN({"binding", binding}, {"progress", progress})
