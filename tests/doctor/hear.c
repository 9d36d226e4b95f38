/* hear.c: collects findings as text, here or in a prepared child. */
#include "tests/doctor/hear.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/child.h"
#include "tests/harness/test.h"

enum { HEARD_BYTES = 1 << 16, UNPREPARED = 77 };

static char heard[HEARD_BYTES];

static void keep(void *user, const struct tide_finding *finding)
{
    static const char *const verdicts[] = {"ok", "warn", "FAIL"};
    (void)user;
    size_t used = strlen(heard);
    snprintf(heard + used, sizeof heard - used, "%s %s %s: %s => %s {%s %.6g}\n",
             verdicts[finding->verdict], finding->topic, finding->subject, finding->text,
             finding->cure, finding->figure, finding->value);
}

struct doctor hear_alone(const char *root)
{
    heard[0] = '\0';
    struct doctor doctor;
    doctor_init(&doctor, 1);
    doctor.root = root;
    doctor.finding = keep;
    doctor.memory_ns = 5000000;
    doctor.memory_bytes = 16 << 20;
    doctor.store_ns = 100000000;
    return doctor;
}

const char *heard_text(void)
{
    return heard;
}

static void run(const char *root, const char *store)
{
    struct doctor doctor = hear_alone(root);
    doctor_run(&doctor, &store, store != NULL ? 1 : 0);
}

/* Runs in the child, and never returns to the test. */
static _Noreturn void run_in_child(const char *root, const char *store, int (*prepare)(void),
                                   int pipe_end)
{
    if (prepare() != 0) {
        _exit(UNPREPARED);
    }
    run(root, store);
    size_t bytes = strlen(heard);
    test_child_end(write(pipe_end, heard, bytes) == (ssize_t)bytes ? 0 : 1);
}

static void read_heard(int pipe_end)
{
    size_t used = 0;
    ssize_t got;
    while ((got = read(pipe_end, heard + used, sizeof heard - 1 - used)) > 0) {
        used += (size_t)got;
    }
    heard[used] = '\0';
}

const char *hear(const char *root, const char *store, int (*prepare)(void))
{
    if (prepare == NULL) {
        run(root, store);
        return heard;
    }
    int ends[2];
    check_int(pipe(ends), ==, 0);
    fflush(stdout);
    pid_t child = fork();
    check_int(child, >=, 0);
    if (child == 0) {
        close(ends[0]);
        run_in_child(root, store, prepare, ends[1]);
    }
    close(ends[1]);
    read_heard(ends[0]);
    close(ends[0]);
    int status = 0;
    check_int(waitpid(child, &status, 0), ==, child);
    check_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == UNPREPARED) {
        test_skip("the machine does not let a test prepare this");
    }
    check_int(WEXITSTATUS(status), ==, 0);
    return heard;
}

static void write_file(const char *root, const char *name, const char *text)
{
    char *path = NULL;
    check_true(asprintf(&path, "%s%s", root, name) > 0);
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        mkdir(path, 0755);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    check_true(file != NULL);
    check_true(fputs(text, file) >= 0);
    check_int(fclose(file), ==, 0);
    free(path);
}

const char *machine(const char *name, const char *const files[][2])
{
    static char root[512];
    snprintf(root, sizeof root, "%s/%s", test_directory(), name);
    mkdir(root, 0755);
    for (size_t i = 0; files[i][0] != NULL; i++) {
        write_file(root, files[i][0], files[i][1]);
    }
    return root;
}

void check_cures(const char *text)
{
    for (const char *line = text; *line != '\0'; line = strchr(line, '\n') + 1) {
        bool fine = strncmp(line, "ok ", 3) == 0;
        const char *cure = strstr(line, " => ");
        check_true(cure != NULL);
        bool cured = cure[4] != ' ';
        if (cured == fine) {
            test_fail(__FILE__, __LINE__, "verdict and cure do not fit: %.300s", line);
        }
    }
}
