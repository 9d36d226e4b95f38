/* Tests failing requests to the system: objects end with an error or a fallback and free
 * everything. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "core/base/err.h"
#include "core/base/mem.h"
#include "core/base/queue.h"
#include "core/base/team.h"
#include "core/base/topo_read.h"
#include "core/config/config.h"
#include "core/json/json.h"
#include "core/json/write.h"
#include "tests/base/dgx.h"
#include "tests/harness/child.h"
#include "tests/harness/fail_alloc.h"
#include "tests/harness/test.h"

static int team_life(void)
{
    struct core_team *team = NULL;
    int rc = core_team_create(&(struct core_team_options){.name = "t", .count = 5}, &team);
    core_team_destroy(team);
    return rc;
}

static int queue_life(void)
{
    struct core_queue *queue = NULL;
    int rc = core_queue_create(&(struct core_queue_options){.name = "q", .depth = 4}, &queue);
    core_queue_destroy(queue);
    return rc;
}

static int region_life(void)
{
    struct core_region region = {0};
    struct core_region_options options = {.name = "arena", .bytes = 5 << 20};
    int rc = core_region_alloc(&options, &region);
    core_region_free(&region);
    return rc;
}

static const char *dgx_root;

static int topo_life(void)
{
    struct core_topo *topo = NULL;
    int rc = core_topo_create(CORE_TOPO_SYSFS, dgx_root, NULL, &topo);
    core_topo_destroy(topo);
    return rc;
}

static int json_life(void)
{
    static const char text[] = "{\"a\": [1, 2.5, \"x\"], \"b\": {\"c\": null}}";
    struct core_json *json = NULL;
    int rc = core_json_parse(text, sizeof text - 1, "config", NULL, &json);
    core_json_destroy(json);
    return rc;
}

static const char *json_path;

static int json_file_life(void)
{
    struct core_json *json = NULL;
    int rc = core_json_load(json_path, NULL, &json);
    core_json_destroy(json);
    return rc;
}

static int cfg_life(void)
{
    static const char text[] = "{\"train_batch_size\": \"auto\", \"typo\": 1, // a note\n"
                               "\"fp16\": {\"enabled\": \"true\"}, \"bf16\": {\"enabled\": 7},\n"
                               "\"zero_optimization\": {\"stage\": 3, \"aio\": {}}}";
    struct core_cfg *cfg = NULL;
    int rc = core_cfg_parse(text, sizeof text - 1, "config", NULL, &cfg);
    struct core_json_write write;
    core_json_write_init_text(&write);
    if (rc == 0) {
        core_cfg_write(cfg, &write, NULL);
        rc = core_json_write_end(&write);
    }
    core_json_write_fini(&write);
    core_cfg_destroy(cfg);
    return rc;
}

static int cfg_base64_life(void)
{
    struct core_cfg *cfg = NULL;
    int rc = core_cfg_load("eyJ0cmFpbl9iYXRjaF9zaXplIjogOH0=", NULL, &cfg);
    core_cfg_destroy(cfg);
    return rc;
}

static void documents_end_clean(void)
{
    json_path = test_file("fail.json", "[1, {\"a\": 2}]", 13);
    check_int(test_fail_nth(json_life), ==, 7);
    check_int(test_fail_nth(json_file_life), >=, 6);
    check_int(test_fail_nth(cfg_life), >=, 100);
    check_int(test_fail_nth(cfg_base64_life), >=, 10);
}

static int json_write_life(void)
{
    struct core_json_write write;
    core_json_write_init_text(&write);
    core_json_write_array_begin(&write, NULL);
    for (int i = 0; i < 500; i++) {
        core_json_write_string(&write, NULL, "some text that makes the buffer grow");
    }
    core_json_write_array_end(&write);
    int rc = core_json_write_end(&write);
    core_json_write_fini(&write);
    return rc;
}

static void objects_end_clean(void)
{
    check_int(test_fail_nth(team_life), ==, 5);
    check_int(test_fail_nth(queue_life), ==, 3);
    check_int(test_fail_nth(json_write_life), >=, 2);
    dgx_root = dgx_files("machine");
    check_int(test_fail_nth(topo_life), >=, 1);
}

static void regions_end_clean(void)
{
    check_int(test_fail_nth(region_life), >=, 2);
}

/* ---- the harness itself ---- */

static void *do_nothing(void *argument)
{
    return argument;
}

/* volatile, so that the compiler keeps the allocation */
static void *volatile kept;
static void *volatile second;
static pthread_t kept_thread;

static int leak_life(void)
{
    kept = malloc(8);
    second = malloc(8);
    if (second == NULL) {
        return core_err_set(-ENOMEM, "no memory"); /* leaks `kept` on purpose */
    }
    free(second);
    free(kept);
    return 0;
}

static int silent_life(void)
{
    second = malloc(8);
    bool good = second != NULL;
    free(second);
    return good ? 0 : -ENOMEM;
}

static int wrong_code_life(void)
{
    second = realloc(NULL, 8);
    bool good = second != NULL;
    free(second);
    return good ? 0 : core_err_set(-EIO, "something");
}

static int map_life(void)
{
    void *at = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at != MAP_FAILED ? 0 : core_err_set(-ENOMEM, "no mapping");
}

static int thread_life(void)
{
    return pthread_create(&kept_thread, NULL, do_nothing, NULL) == 0
               ? 0
               : core_err_set(-EAGAIN, "no thread");
}

static int (*life_of_case)(void);

static void case_of_life(void)
{
    test_fail_nth(life_of_case);
}

static int run_case_of(void *argument)
{
    int (**life)(void) = argument;
    life_of_case = *life;
    static const struct test_case one[] = {{"bad", case_of_life}};
    char name[] = "test";
    char *words[] = {name, NULL};
    if (freopen("/dev/null", "w", stdout) == NULL) {
        return 9;
    }
    return test_main(1, words, one, 1);
}

/* The harness finds leaks, missing messages and wrong codes. */
static void the_harness_can_fail(void)
{
    int (*bad[])(void) = {leak_life, silent_life, wrong_code_life, map_life, thread_life};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        check_int(test_child(run_case_of, &bad[i]), ==, 1);
    }
}

static int every_request_life(void)
{
    void *posix = NULL;
    int rc = posix_memalign(&posix, 64, 64);
    void *volatile got[] = {strdup("text"), strndup("text", 2), aligned_alloc(64, 64),
                            calloc(2, 8),   realloc(NULL, 8),   posix};
    bool whole = rc == 0;
    for (size_t i = 0; i < sizeof got / sizeof got[0]; i++) {
        whole = whole && got[i] != NULL;
        free(got[i]);
    }
    return whole ? 0 : core_err_set(-ENOMEM, "one of six");
}

/* The harness counts these six kinds of requests. */
static void every_request_is_wrapped(void)
{
    check_int(test_fail_nth(every_request_life), ==, 6);
}

TEST_MAIN({"objects_end_clean", objects_end_clean}, {"regions_end_clean", regions_end_clean},
          {"documents_end_clean", documents_end_clean},
          {"the_harness_can_fail", the_harness_can_fail},
          {"every_request_is_wrapped", every_request_is_wrapped})
