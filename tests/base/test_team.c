/* Tests teams, processor sets, the binding of logs, and error messages. */
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/base/cpus.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/queue.h"
#include "core/base/team.h"
#include "tests/harness/heard.h"
#include "tests/harness/test.h"

static void count_part(void *argument, unsigned index, unsigned count)
{
    unsigned *ran = argument;
    (void)count;
    ran[index]++;
}

/* Each member runs each call once, even after a sleep. */
static void every_member_runs(void)
{
    const unsigned sizes[] = {1, 2, 3, 64};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        struct core_team *team = NULL;
        struct core_team_options options = {.name = "t", .count = sizes[s], .spin_ns = -1};
        check_int(core_team_create(&options, &team), ==, 0);
        check_int(core_team_count(team), ==, sizes[s]);
        unsigned ran[64] = {0};
        for (int call = 0; call < 300; call++) {
            core_team_run(team, count_part, ran);
            if (call % 100 == 0) {
                usleep(1000);
            }
        }
        core_team_destroy(team);
        for (unsigned i = 0; i < sizes[s]; i++) {
            check_int(ran[i], ==, 300);
        }
    }
}

static void pinned_part(void *argument, unsigned index, unsigned count)
{
    (void)count;
    struct core_cpus *where = argument;
    core_cpus_allowed(&where[index]);
}

/* Members other than the caller run on their own processors. */
static void members_are_pinned(void)
{
    struct core_cpus allowed;
    check_int(core_cpus_allowed(&allowed), ==, 0);
    struct core_team *team = NULL;
    struct core_cpus sets[3] = {{{0}}};
    for (unsigned i = 0; i < 3; i++) {
        core_cpus_add(&sets[i], (unsigned)core_cpus_nth(&allowed, i));
    }
    struct core_team_options options = {.name = "pin", .sets = sets, .count = 3};
    check_int(core_team_create(&options, &team), ==, 0);
    struct core_cpus where[3] = {{{0}}};
    core_team_run(team, pinned_part, where);
    core_team_destroy(team);
    for (unsigned i = 1; i < 3; i++) {
        check_memory(&where[i], &sets[i], sizeof sets[i]);
    }
    options = (struct core_team_options){.name = "all"};
    check_int(core_team_create(&options, &team), ==, 0);
    check_int(core_team_count(team), ==, core_cpus_count(&allowed));
    core_team_destroy(team);
    options.count = CORE_TEAM_MAX + 1;
    check_int(core_team_create(&options, &team), ==, -EINVAL);
    core_team_destroy(NULL);
}

/* Threads on missing processors run unpinned, with a warning. */
static void no_such_processor(void)
{
    struct core_cpus none = {{0}};
    struct core_team *team = NULL;
    struct core_queue *queue = NULL;
    core_cpus_add(&none, CORE_CPUS_MAX - 1);
    const struct core_cpus sets[2] = {none, none};
    const struct core_team_options options = {.name = "pin", .sets = sets, .count = 2};
    struct core_cpus where[2] = {{{0}}};
    test_listen(CORE_LOG_WARN);
    check_int(core_team_create(&options, &team), ==, 0);
    core_team_run(team, pinned_part, where);
    core_team_destroy(team);
    check_int(test_heard_lines("the thread is left unpinned"), ==, 1);
    check_int(core_cpus_count(&where[1]), >=, 1);
    check_int(core_queue_create(
                  &(struct core_queue_options){.name = "q", .depth = 4, .cpus = &none}, &queue),
              ==, 0);
    core_queue_destroy(queue);
    test_listen_end();
    check_int(test_heard_lines("left unpinned"), ==, 2);
}

/* Shares cover everything once and are balanced; those that are not empty begin at multiples of the
 * grain. */
static void shares_cover(void)
{
    for (uint64_t total = 0; total < 200; total++) {
        for (unsigned count = 1; count < 9; count++) {
            uint64_t expected = 0;
            for (unsigned i = 0; i < count; i++) {
                uint64_t begin;
                uint64_t end;
                core_team_share(total, 16, i, count, &begin, &end);
                check_int(begin, ==, expected);
                check_true(end == total || end % 16 == 0);
                check_int(end - begin, <=, (total / 16 / count + 1) * 16);
                expected = end;
            }
            check_int(expected, ==, total);
        }
    }
}

static void cpu_lists(void)
{
    struct core_cpus set;
    char text[64];
    check_int(core_cpus_parse("0-3,8,10-11\n", &set), ==, 0);
    check_int(core_cpus_count(&set), ==, 7);
    check_int(core_cpus_nth(&set, 4), ==, 8);
    check_int(core_cpus_nth(&set, 7), ==, 0);
    check_int(core_cpus_print(&set, text, sizeof text), ==, 11);
    check_string(text, "0-3,8,10-11");
    check_int(core_cpus_print(&set, text, 4), ==, 11);
    check_int(core_cpus_parse("", &set), ==, 0);
    check_int(core_cpus_nth(&set, 0), ==, -ENOENT);
    const char *const bad[] = {"x", "3-", "3-1", "-1", "1024", "1,,2", "1;2"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        check_int(core_cpus_parse(bad[i], &set), ==, -EINVAL);
        check_contains(core_err_message(), bad[i]);
    }
    core_cpus_parse("1000", &set);
    check_true(core_cpus_bind_self(&set) != 0);
    check_contains(core_err_message(), "1000");
}

static void cpu_flags_are_masked(void)
{
    char text[128];
    unsigned all = core_cpu_flags(CORE_CPU_ALL);
    check_int(core_cpu_flags(0), ==, 0);
    check_int(core_cpu_flags(CORE_CPU_AVX2) & ~(unsigned)CORE_CPU_AVX2, ==, 0);
    check_true(!core_cpu_flags_limited() || getenv("TIDE_ISA") != NULL);
    check_true((all & CORE_CPU_AVX512) == 0 || (all & CORE_CPU_AVX2) != 0);
    check_string(core_cpu_flags_print(0, text, sizeof text), "none");
    check_string(core_cpu_flags_print(CORE_CPU_AVX2 | CORE_CPU_NEON, text, sizeof text),
                 "avx2 neon");
    test_note("this machine: %s", core_cpu_flags_print(all, text, sizeof text));
}

static _Atomic int lines_seen;

static void count_line(void *user, enum core_log_level level, const char *line)
{
    (void)user;
    (void)level;
    (void)line;
    atomic_fetch_add(&lines_seen, 1);
}

static void log_part(void *argument, unsigned index, unsigned count)
{
    (void)argument;
    core_log(CORE_LOG_WARN, "member %u of %u", index, count);
    core_log(CORE_LOG_DEBUG, "dropped");
}

static void log_binding_is_inherited(void)
{
    struct core_log sink = {.level = CORE_LOG_INFO, .write = count_line};
    core_log(CORE_LOG_ERROR, "nobody listens");
    core_log_bind(&sink);
    check_true(core_log_bound() == &sink);
    struct core_team *team = NULL;
    check_int(core_team_create(&(struct core_team_options){.count = 4}, &team), ==, 0);
    core_team_run(team, log_part, NULL);
    core_team_destroy(team);
    core_log_bind(NULL);
    check_int(lines_seen, ==, 4);
    check_string(core_log_level_name(CORE_LOG_WARN), "warn");
}

/* A long message is cut between characters; a prefix is added. */
static void messages(void)
{
    char longer[3000];
    for (size_t i = 0; i + 2 < sizeof longer; i += 2) {
        memcpy(longer + i, "\xc3\xa9", 2);
    }
    longer[sizeof longer - 2] = '\0';
    check_int(core_err_set(-EINVAL, "x%s", longer), ==, -EINVAL);
    size_t length = strlen(core_err_message());
    check_int(length, <, CORE_ERR_MESSAGE_BYTES);
    check_string(core_err_message() + length - 3, "...");
    check_int((unsigned char)core_err_message()[length - 4], ==, 0xa9);
    check_int(core_err_set(-EIO, "disk %d", 7), ==, -EIO);
    check_int(core_err_prefix(-EIO, "file %s", "a"), ==, -EIO);
    check_string(core_err_message(), "file a: disk 7");
    check_int(core_err_prefix(-EIO, "%s", longer), ==, -EIO);
    check_int(strlen(core_err_message()), <, CORE_ERR_MESSAGE_BYTES);
    memset(longer, 'm', CORE_ERR_MESSAGE_BYTES - 4);
    longer[CORE_ERR_MESSAGE_BYTES - 4] = '\0';
    check_int(core_err_set(-EIO, "%s", longer), ==, -EIO);
    check_int(core_err_prefix(-EIO, "file a"), ==, -EIO);
    check_contains(core_err_message(), "file a: mmm");
    check_contains(core_err_message(), "mmm...");
    check_int(core_err_adopt(-EPERM, "other"), ==, -EPERM);
    check_string(core_err_message(), "other");
}

/* The first error is kept; without a first error, the cleanup's. */
static void first_error(void)
{
    struct core_err kept = core_err_keep(core_err_set(-EIO, "the disk"));
    check_int(core_err_first(&kept, core_err_set(-EPERM, "the ending")), ==, -EIO);
    check_string(core_err_message(), "the disk");
    check_int(core_err_first(&kept, 0), ==, -EIO);
    kept = core_err_keep(0);
    check_int(core_err_first(&kept, 0), ==, 0);
    check_int(core_err_first(&kept, core_err_set(-EPERM, "the ending")), ==, -EPERM);
    check_string(core_err_message(), "the ending");
}

static void note_thread(void *argument, unsigned index, unsigned count)
{
    _Atomic int *thread = argument;
    (void)count;
    if (index == 1) {
        atomic_store(thread, gettid());
    }
}

static bool sleeps(int thread)
{
    char path[64];
    char state = '?';
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    FILE *file = fopen(path, "r");
    check_true(file != NULL);
    check_int(fscanf(file, "%*d (%*[^)]) %c", &state), ==, 1);
    (void)fclose(file);
    return state == 'S';
}

/* A member that expects no work sleeps at once, however long the team may spin. */
static void members_do_not_spin_for_nothing(void)
{
    struct core_team *team = NULL;
    struct core_team_options options = {.name = "t", .count = 2, .spin_ns = INT64_C(3600000000000)};
    _Atomic int thread = 0;
    check_int(core_team_create(&options, &team), ==, 0);
    core_team_expect(team, false);
    core_team_run(team, note_thread, &thread);
    const clock_t start = clock(); /* processor time, which a spinning member uses */
    while (!sleeps(thread)) {
        check_true((double)(clock() - start) < 2.0 * (double)CLOCKS_PER_SEC);
        usleep(1000);
    }
    core_team_expect(team, true);
    core_team_run(team, note_thread, &thread);
    core_team_destroy(team);
}

TEST_MAIN({"every_member_runs", every_member_runs}, {"members_are_pinned", members_are_pinned},
          {"no_such_processor", no_such_processor}, {"shares_cover", shares_cover},
          {"cpu_lists", cpu_lists}, {"cpu_flags_are_masked", cpu_flags_are_masked},
          {"log_binding_is_inherited", log_binding_is_inherited}, {"messages", messages},
          {"first_error", first_error},
          {"members_do_not_spin_for_nothing", members_do_not_spin_for_nothing})
