/* test_launch.c: what the environment variables of launchers mean. */
#include <errno.h>

#include "core/base/err.h"
#include "core/coll/launch.h"
#include "tests/harness/test.h"

/* names and values in turn */
static const char *const *environment;

static const char *get(const char *name)
{
    for (const char *const *at = environment; *at != NULL; at += 2) {
        if (strcmp(at[0], name) == 0) {
            return at[1];
        }
    }
    return NULL;
}

static struct coll_launch find(const char *const *variables)
{
    struct coll_launch launch = {.world = 77};
    environment = variables;
    check_int(coll_launch_find(get, &launch), ==, 0);
    return launch;
}

/* Processes ask for their rank before they read anything else. */
static unsigned rank_of(const char *const *variables)
{
    environment = variables;
    return coll_launch_rank(get);
}

/* Variables identify the launcher; without them a process is alone. */
static void launchers(void)
{
    static const char *const none[] = {NULL};
    static const char *const openmpi[] = {
        "OMPI_COMM_WORLD_RANK", "2", "OMPI_COMM_WORLD_SIZE", "4", "PMIX_RANK", "2", NULL};
    static const char *const mpich[] = {"PMI_RANK", "0", "PMI_SIZE", "3", NULL};
    static const char *const slurm[] = {
        "SLURM_PROCID", "1", "SLURM_STEP_NUM_TASKS", "2", "SLURM_STEP_ID", "0", NULL};
    static const char *const torch[] = {"RANK", "1", "WORLD_SIZE", "2", "LOCAL_RANK", "1", NULL};
    static const char *const pmix[] = {"PMIX_RANK", "1",          "RANK", "1", "WORLD_SIZE",
                                       "2",         "LOCAL_RANK", "1",    NULL};
    static const char *const negative[] = {"RANK",       "-1", "WORLD_SIZE", "2",
                                           "LOCAL_RANK", "1",  NULL};
    check_string(find(pmix).launcher, "a launcher with PMIx");
    check_uint(find(pmix).world, ==, 0); /* only MPI knows */
    check_true(find(none).launcher == NULL);
    check_uint(find(none).world, ==, 1);
    check_uint(rank_of(none), ==, 0);
    check_uint(rank_of(openmpi), ==, 2);
    check_uint(rank_of(slurm), ==, 1);
    check_uint(rank_of(negative), ==, 0);
    check_string(find(openmpi).launcher, "mpirun (Open MPI)");
    check_uint(find(openmpi).rank, ==, 2);
    check_uint(find(openmpi).world, ==, 4);
    check_int(find(openmpi).flavour, ==, COLL_FLAVOUR_OPENMPI);
    check_int(find(mpich).flavour, ==, COLL_FLAVOUR_MPICH);
    check_uint(find(mpich).world, ==, 3);
    check_string(find(slurm).launcher, "srun (Slurm)");
    check_true(find(torch).torchrun);
}

/* A batch script of Slurm is one process; daemons of mpirun are not ranks. */
static void not_ranks(void)
{
    static const char *const batch[] = {"SLURM_PROCID", "0", "SLURM_NTASKS", "8", NULL};
    static const char *const daemons[] = {"OMPI_COMM_WORLD_RANK",
                                          "3",
                                          "OMPI_COMM_WORLD_SIZE",
                                          "4",
                                          "SLURM_PROCID",
                                          "1",
                                          "SLURM_STEP_NUM_TASKS",
                                          "2",
                                          "SLURM_STEP_ID",
                                          "0",
                                          NULL};
    check_true(find(batch).launcher == NULL);
    check_uint(find(daemons).world, ==, 4);
    check_uint(find(daemons).rank, ==, 3);
}

/* Torchrun's variables give the rank and the rendezvous, unless mpirun started the process. */
static void torchrun(void)
{
    static const char *const agent[] = {"RANK",        "3",     "WORLD_SIZE",          "4",
                                        "LOCAL_RANK",  "1",     "LOCAL_WORLD_SIZE",    "2",
                                        "GROUP_RANK",  "1",     "MASTER_ADDR",         "node1",
                                        "MASTER_PORT", "29500", "TORCHELASTIC_RUN_ID", "7",
                                        NULL};
    static const char *const some[] = {"RANK",        "0",     "WORLD_SIZE", "1",
                                       "MASTER_ADDR", "node1", NULL};
    static const char *const restarted[] = {"RANK",
                                            "3",
                                            "WORLD_SIZE",
                                            "4",
                                            "LOCAL_RANK",
                                            "1",
                                            "MASTER_ADDR",
                                            "node1",
                                            "MASTER_PORT",
                                            "29500",
                                            "TORCHELASTIC_RUN_ID",
                                            "7",
                                            "TORCHELASTIC_RESTART_COUNT",
                                            "1",
                                            NULL};
    static const char *const v6[] = {"RANK",        "0",    "WORLD_SIZE",  "2",
                                     "LOCAL_RANK",  "0",    "MASTER_ADDR", "fe80::1",
                                     "MASTER_PORT", "1234", NULL};
    static const char *const beyond[] = {"RANK",        "0",     "WORLD_SIZE",  "2",
                                         "LOCAL_RANK",  "0",     "MASTER_ADDR", "a",
                                         "MASTER_PORT", "65535", NULL};
    static const char *const mute[] = {"RANK", "0", "WORLD_SIZE", "2", "LOCAL_RANK", "0", NULL};
    static const char *const portless[] = {"RANK", "0",           "WORLD_SIZE", "2", "LOCAL_RANK",
                                           "0",    "MASTER_ADDR", "a",          NULL};
    static const char *const zero[] = {"RANK",        "0", "WORLD_SIZE",  "2", "LOCAL_RANK", "0",
                                       "MASTER_ADDR", "a", "MASTER_PORT", "0", NULL};
    static const char *const nameless[] = {"RANK",        "0",     "WORLD_SIZE",  "2",
                                           "LOCAL_RANK",  "0",     "MASTER_ADDR", "",
                                           "MASTER_PORT", "29500", NULL};
    static const char *const inside[] = {
        "OMPI_COMM_WORLD_RANK", "1", "OMPI_COMM_WORLD_SIZE", "2", "RANK", "1",
        "WORLD_SIZE",           "2", "LOCAL_RANK",           "1", NULL};
    check_string(find(agent).launcher, "torchrun");
    check_uint(find(agent).rank, ==, 3);
    check_uint(find(agent).world, ==, 4);
    check_string(find(agent).rendezvous, "node1:29501");
    check_true(find(agent).run != find(restarted).run);
    check_string(find(v6).rendezvous, "[fe80::1]:1235");
    check_string(find(beyond).rendezvous, "");
    check_string(find(mute).rendezvous, "");
    check_string(find(zero).rendezvous, "");
    check_string(find(portless).rendezvous, "");
    check_string(find(nameless).rendezvous, "");
    check_true(find(some).launcher == NULL);
    check_string(find(inside).launcher, "mpirun (Open MPI)");
    check_true(!find(inside).torchrun);
}

static void refused(const char *const *variables, const char *first, const char *second)
{
    struct coll_launch launch;
    environment = variables;
    check_int(coll_launch_find(get, &launch), ==, -EINVAL);
    check_contains(core_err_message(), first);
    check_contains(core_err_message(), second);
}

/* Contradictions are errors that name the variables; invalid numbers are errors, too. */
static void contradictions(void)
{
    static const char *const worlds[] = {
        "OMPI_COMM_WORLD_RANK", "0", "OMPI_COMM_WORLD_SIZE", "4", "RANK", "0",
        "WORLD_SIZE",           "2", "LOCAL_RANK",           "0", NULL};
    static const char *const ranks[] = {"PMI_RANK", "0", "PMI_SIZE", "2", "PMIX_RANK", "1", NULL};
    static const char *const torch[] = {"PMI_RANK",   "1", "PMI_SIZE",   "2", "RANK", "0",
                                        "WORLD_SIZE", "2", "LOCAL_RANK", "0", NULL};
    static const char *const empty[] = {"RANK", "0", "WORLD_SIZE", "", "LOCAL_RANK", "0", NULL};
    static const char *const beyond[] = {"PMI_RANK", "2", "PMI_SIZE", "2", NULL};
    static const char *const words[] = {"PMI_RANK", "two", "PMI_SIZE", "2", NULL};
    static const char *const tail[] = {"PMI_RANK", "0", "PMI_SIZE", "2x", NULL};
    static const char *const huge[] = {"PMI_RANK", "0", "PMI_SIZE", "99999999999999999999", NULL};
    static const char *const million[] = {"PMI_RANK", "0", "PMI_SIZE", "1000001", NULL};
    static const char *const here[] = {
        "RANK", "0", "WORLD_SIZE", "2", "LOCAL_RANK", "0", "LOCAL_WORLD_SIZE", "here", NULL};
    static const char *const rank[] = {
        "RANK", "0", "WORLD_SIZE", "2", "LOCAL_RANK", "-", "LOCAL_WORLD_SIZE", "2", NULL};
    static const char *const many[] = {
        "RANK", "0", "WORLD_SIZE", "2", "LOCAL_RANK", "3", "LOCAL_WORLD_SIZE", "4", NULL};
    static const char *const local[] = {
        "RANK", "0", "WORLD_SIZE", "2", "LOCAL_RANK", "2", "LOCAL_WORLD_SIZE", "2", NULL};
    static const char *const incomplete[] = {"RANK",        "1",     "WORLD_SIZE", "2",
                                             "MASTER_ADDR", "node1", NULL};
    static const char *const unread[] = {"RANK", "0", "WORLD_SIZE", "two", NULL};
    static const char *const port[] = {"RANK", "0",           "WORLD_SIZE", "2", "LOCAL_RANK",
                                       "0",    "MASTER_PORT", "http",       NULL};
    refused(many, "LOCAL_WORLD_SIZE is 4", "WORLD_SIZE is 2");
    refused(local, "LOCAL_RANK is 2", "LOCAL_WORLD_SIZE is 2");
    refused(port, "MASTER_PORT", "\"http\"");
    refused(incomplete, "WORLD_SIZE is 2", "LOCAL_RANK is not set");
    refused(unread, "WORLD_SIZE is \"two\"", "expected a number");
    refused(worlds, "OMPI_COMM_WORLD_SIZE=4", "WORLD_SIZE=2");
    refused(ranks, "PMI_RANK=0", "PMIX_RANK=1");
    refused(torch, "PMI_RANK=1", "RANK=0; start tide with one of mpiexec (PMI) and torchrun");
    refused(empty, "WORLD_SIZE", "expected a number");
    refused(beyond, "PMI_RANK is 2", "PMI_SIZE is 2");
    refused(words, "PMI_RANK", "\"two\"");
    refused(tail, "PMI_SIZE", "\"2x\"");
    refused(huge, "PMI_SIZE", "\"99999999999999999999\" (expected a number from 0 to 1000000)");
    refused(million, "PMI_SIZE", "\"1000001\"");
    refused(here, "LOCAL_WORLD_SIZE", "\"here\"");
    refused(rank, "LOCAL_RANK", "\"-\"");
}

TEST_MAIN({"launchers", launchers}, {"not_ranks", not_ranks}, {"torchrun", torchrun},
          {"contradictions", contradictions})
