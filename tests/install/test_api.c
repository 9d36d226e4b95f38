/* test_api.c: public functions, as an application calls them. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <tide/tide.h>

#include "tests/harness/test.h"

/* The version agrees with the header, and the build is described. */
static void build(void)
{
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", TIDE_VERSION_MAJOR, TIDE_VERSION_MINOR,
             TIDE_VERSION_PATCH);
    check_string(tide_version(), version);
    struct tide_build info = {.struct_bytes = sizeof info};
    check_int(tide_build_info(&info), ==, 0);
    check_string(info.version, version);
    check_true(strlen(info.commit) >= 7);
    check_true(strlen(info.compiler) >= 5);
    check_true(strlen(info.target) >= 5);
    check_int(tide_build_info(NULL), ==, -EINVAL);
    check_contains(tide_last_error(), "tide_build");
}

/* Lists end with -ENOENT. */
static void lists(void)
{
    struct tide_backend backend = {.struct_bytes = sizeof backend};
    unsigned found = 0;
    unsigned index = 0;
    int rc;
    for (; (rc = tide_backend_at(index, &backend)) == 0; index++) {
        bool device = strcmp(backend.task, "device") == 0;
        found |= device && strcmp(backend.name, "cpu") == 0 && backend.built;
        found |= device && strcmp(backend.name, "cuda") == 0 ? 2 : 0;
        found |= strcmp(backend.task, "ranks") == 0 && strcmp(backend.name, "local") == 0 ? 4 : 0;
    }
    check_int(rc, ==, -ENOENT);
    check_int(found, ==, 7);
    struct tide_library library = {.struct_bytes = sizeof library};
    found = 0;
    for (index = 0; (rc = tide_library_at(index, &library)) == 0; index++) {
        found += strlen(library.name) > 0 && strlen(library.state) > 0;
    }
    check_int(rc, ==, -ENOENT);
    check_int(found, ==, index);
    check_int(found, >=, 2);
}

struct talk {
    unsigned lines;
    unsigned calls;
    int stop;
    char last[256];
};

static void log_line(void *user, uint32_t level, const char *line)
{
    struct talk *talk = user;
    talk->lines++;
    snprintf(talk->last, sizeof talk->last, "%d %s", (int)level, line);
}

static int progress(void *user, const struct tide_progress *now)
{
    struct talk *talk = user;
    talk->calls++;
    return talk->stop && now->done == 0 && now->struct_bytes == sizeof *now;
}

/* Log lines and progress go to the context of the call. */
static void contexts(void)
{
    struct talk talks[2] = {{0}};
    struct tide_context *contexts[2];
    for (int i = 0; i < 2; i++) {
        struct tide_context_options options = {.struct_bytes = sizeof options,
                                               .log_level = TIDE_LOG_DEBUG,
                                               .log = log_line,
                                               .progress = progress,
                                               .user = &talks[i]};
        check_int(tide_context_create(&options, &contexts[i]), ==, 0);
    }
    check_int(tide_device_count(contexts[1], "abacus"), ==, -EINVAL);
    check_uint(talks[0].lines, ==, 0);
    check_uint(talks[1].lines, >=, 1);
    check_contains(talks[1].last, "abacus");
    struct tide_device_rates rates = {.struct_bytes = sizeof rates};
    check_int(tide_device_measure(contexts[0], "cpu", 1 << 16, &rates), ==, 0);
    check_uint(talks[0].calls, ==, 2);
    check_double(rates.up, >, 0);
    check_double(rates.both, >, 0);
    talks[0].stop = 1;
    rates.up = -1;
    check_int(tide_device_measure(contexts[0], "cpu", 1 << 16, &rates), ==, -ECANCELED);
    check_contains(tide_last_error(), "measure copies");
    check_double(rates.up, ==, -1);
    tide_context_destroy(contexts[0]);
    tide_context_destroy(contexts[1]);
    tide_context_destroy(NULL);
    check_int(tide_context_create(NULL, &contexts[0]), ==, 0);
    check_int(tide_device_count(contexts[0], "cpu"), ==, 1);
    check_int(tide_device_count(NULL, "cpu"), ==, 1);
    tide_context_destroy(contexts[0]);
    struct tide_context_options wrong = {.struct_bytes = sizeof wrong, .log_level = 4};
    check_int(tide_context_create(&wrong, &contexts[0]), ==, -EINVAL);
}

/* A device describes itself; a missing one has a reason. */
static void devices(void)
{
    struct tide_device_info info = {.struct_bytes = sizeof info};
    check_int(tide_device_describe(NULL, "cpu", &info), ==, 0);
    check_string(info.name, "cpu");
    check_int(info.units, >=, 1);
    check_int(info.memory_total_bytes, >, 1 << 20);
    check_int(tide_device_describe(NULL, "cuda:1000000", &info), ==, -EINVAL);
    check_int(tide_device_describe(NULL, NULL, &info), ==, -EINVAL);
    check_int(tide_device_count(NULL, NULL), ==, -EINVAL);
    int count = tide_device_count(NULL, "cuda");
    if (count < 0) {
        test_note("%s", tide_last_error());
        check_true(count == -ENODEV || count == -ENOTSUP);
        check_contains(tide_last_error(), "cuda");
        check_int(tide_device_describe(NULL, "cuda", &info), ==, count);
    } else {
        check_int(tide_device_describe(NULL, "cuda", &info), ==, 0);
        check_string(info.name, "cuda:0");
    }
    struct tide_device_rates rates = {.struct_bytes = sizeof rates};
    check_int(tide_device_measure(NULL, "cpu", 0, &rates), ==, -EINVAL);
    check_int(tide_device_measure(NULL, "cpu", SIZE_MAX / 8, &rates), ==, -ENOMEM);
    check_contains(tide_last_error(), "budget");
}

static void *fail_elsewhere(void *argument)
{
    (void)argument;
    struct tide_build info = {.struct_bytes = 1};
    check_int(tide_build_info(&info), ==, -EINVAL);
    return NULL;
}

static void errors_by_thread(void)
{
    struct tide_backend backend = {.struct_bytes = sizeof backend};
    check_int(tide_backend_at(1000, &backend), ==, -ENOENT);
    pthread_t thread;
    check_int(pthread_create(&thread, NULL, fail_elsewhere, NULL), ==, 0);
    pthread_join(thread, NULL);
    check_contains(tide_last_error(), "1000");
}

TEST_MAIN({"build", build}, {"lists", lists}, {"contexts", contexts}, {"devices", devices},
          {"errors_by_thread", errors_by_thread})
