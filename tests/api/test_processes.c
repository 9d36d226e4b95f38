/* test_processes.c: an application whose ranks are processes. The case starts this program again as every rank of a
 * world. Skipped without Open MPI. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <tide/engine.h>
#include <tide/world.h>
#include <unistd.h>

#include "tests/harness/mpi.h"
#include "tests/harness/test.h"

static char self[4096];

/* The first process creates an engine, which needs the second one; that ends without serving it. */
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

/* A process that closes the world before it has served the engines of the first one ends all processes, at once and
 * not after a minute of silence. */
static void leaves_early(void)
{
    static char text[16384];
    char command[8192];
    test_mpi_begin();
    snprintf(command, sizeof command,
             "timeout 50 mpirun.openmpi --oversubscribe --bind-to none -n 2 %s --rank 2>&1", self);
    FILE *pipe = popen(command, "r");
    check_true(pipe != NULL);
    text[fread(text, 1, sizeof text - 1, pipe)] = '\0';
    const int status = pclose(pipe);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 255;
    if (code != 7) {
        test_note("%s", text);
    }
    check_int(code, ==, 7);
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {{"leaves_early", leaves_early}};
    if (argc == 2 && strcmp(argv[1], "--rank") == 0) {
        return be_a_rank();
    }
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = '\0';
    return test_main(argc, argv, cases, sizeof cases / sizeof cases[0]);
}
