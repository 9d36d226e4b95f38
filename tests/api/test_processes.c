/* test_processes.c: an application whose ranks are processes of MPI. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <tide/engine.h>
#include <tide/world.h>
#include <unistd.h>

#include "tests/api/world.h"
#include "tests/harness/mpi.h"
#include "tests/harness/test.h"

static char self[4096];

/* The second process ends without serving the engine of the first process. */
static int be_a_rank(void)
{
    char model[4096];
    struct tide_world *world = NULL;
    struct tide_engine *engine = NULL;
    struct tide_engine_options options;
    if (tide_world_open(NULL, &world) != 0 || world == NULL) {
        fprintf(stderr, "%s\n", tide_last_error());
        return 1;
    }
    if (tide_world_rank() == 0) {
        snprintf(model, sizeof model, "%s/model/fixtures/llama", getenv("TIDE_TEST_ROOT"));
        tide_engine_options_init(&options, sizeof options);
        options.model = model;
        options.world = world;
        options.ranks = 2;
        options.batch = 1;
        options.length = 8;
        if (tide_engine_create(NULL, &options, &engine) != 0) {
            fprintf(stderr, "rank 0: %s\n", tide_last_error());
        }
        tide_engine_destroy(engine);
    }
    tide_world_close(world, 7);
    return 0;
}

/* Runs a shell command; writes its output to `text` and returns the exit code. */
static int run(const char *command, char *text, size_t bytes)
{
    FILE *pipe = popen(command, "r");
    check_true(pipe != NULL);
    text[fread(text, 1, bytes - 1, pipe)] = '\0';
    const int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

/* If a process closes the world too early, the other process ends without waiting for a minute of
 * silence. */
static void leaves_early(void)
{
    static char text[16384];
    char command[8192];
    test_mpi_begin();
    snprintf(command, sizeof command,
             "timeout 50 mpirun.openmpi --oversubscribe --bind-to none -n 2 %s --rank 2>&1", self);
    const int code = run(command, text, sizeof text);
    if (code != 7) {
        test_note("%s", text);
    }
    check_int(code, ==, 7);
}

/* ---- applications that use MPI themselves ---- */

static void run_application(const char *mpirun, const char *flavour, const char *mode)
{
    static char text[16384];
    static struct world files;
    char command[8192];
    const char *root = getenv("TIDE_BUILD_ROOT");
    if (TEST_RACES) {
        test_skip("the library's threads are those of coll_mpi");
    }
    if (files.model[0] == '\0') {
        world_init(&files);
    }
    snprintf(command, sizeof command,
             "timeout 50 %s -n 2 %s/tests/api/mpi_application_%s %s '%s' '%s' 2>&1", mpirun,
             root != NULL ? root : "build", flavour, mode, files.model, files.rates);
    const int code = run(command, text, sizeof text);
    if (code != 0) {
        test_note("%s", text);
    }
    check_int(code, ==, 0);
    check_contains(text, "rank 0 did all");
    check_contains(text, "rank 1 did all");
}

/* An application that initialised MPI keeps it. */
static void application_keeps_mpi(void)
{
    test_mpi_begin();
    run_application("mpirun.openmpi --oversubscribe --bind-to none", "openmpi", "own");
}

static void tide_finalizes_mpi(void)
{
    test_mpi_begin();
    run_application("mpirun.openmpi --oversubscribe --bind-to none", "openmpi", "tide");
}

/* tide needs a separate thread, which this MPI does not allow. */
static void one_thread_is_refused(void)
{
    test_mpi_begin();
    run_application("mpirun.openmpi --oversubscribe --bind-to none", "openmpi", "funnel");
}

static void mpich_applications(void)
{
    test_mpich_begin();
    run_application("mpirun.mpich", "mpich", "own");
    run_application("mpirun.mpich", "mpich", "tide");
    run_application("mpirun.mpich", "mpich", "funnel");
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {{"leaves_early", leaves_early},
                                             {"application_keeps_mpi", application_keeps_mpi},
                                             {"tide_finalizes_mpi", tide_finalizes_mpi},
                                             {"one_thread_is_refused", one_thread_is_refused},
                                             {"mpich_applications", mpich_applications}};
    if (argc == 2 && strcmp(argv[1], "--rank") == 0) {
        return be_a_rank();
    }
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = '\0';
    return test_main(argc, argv, cases, sizeof cases / sizeof cases[0]);
}
