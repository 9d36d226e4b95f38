/* Tests the text of a plan, and the drives that it names. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/mount.h"
#include "tests/harness/test.h"
#include "tools/tide/mounts.h"
#include "tools/tide/plan_text.h"

/* The drive is found for a mount point with a space, a folder that does not exist yet, and a
 * relative path. */
static void mount_points(void)
{
    struct cli_mount mount;
    struct cli_mount here;
    char path[600];
    cli_mount_find(".", &here);
    cli_mount_find("yet-to-be-made", &mount);
    check_string(mount.point, here.point);
    const char *folder = test_mount_memory("my drive", "size=1m");
    if (folder == NULL) {
        test_skip("no file system can be mounted here");
    }
    snprintf(path, sizeof path, "%s/yet/to be made", folder);
    cli_mount_find(path, &mount);
    test_mount_end(folder);
    check_string(mount.type, "tmpfs");
    check_string(mount.device, "tide-test");
    check_contains(mount.point, "/my drive");
}

static char *text_of(void (*print)(const struct tide_plan *plan, FILE *stream))
{
    char *text = NULL;
    size_t bytes = 0;
    struct tide_plan *plan = NULL;
    struct tide_engine_options options;
    tide_engine_options_init(&options, sizeof options);
    FILE *stream = open_memstream(&text, &bytes);
    check_int(tide_plan_create(NULL, &options, &plan), ==, 0);
    print(plan, stream);
    tide_plan_destroy(plan);
    fclose(stream);
    return text;
}

static void print_short(const struct tide_plan *plan, FILE *stream)
{
    const struct tide_store_path root = {.struct_bytes = sizeof root, .directory = "/proc/none"};
    const struct tide_engine_options options = {
        .struct_bytes = sizeof options, .stores = &root, .store_count = 1};
    struct cli_mount mount;
    cli_plan_print_short(plan, &options, stream);
    cli_mount_find("/proc/none", &mount);
    check_string(mount.type, "proc");
}

static void print_all(const struct tide_plan *plan, FILE *stream)
{
    const struct tide_engine_options options = {
        .model = "folder", .batch = 2, .accum = 3, .ranks = 2, .length = 7};
    check_int(cli_plan_print(plan, &options, stream), ==, 0);
}

static void plans(void)
{
    char *text = text_of(print_all);
    check_contains(text,
                   "folder: 1.0M parameters, 900.0K of them trained; a step has 6 x 2 rows of "
                   "7 tokens over all ranks");
    check_contains(text, "  STORE            3.000 GB\n          states   3.000 GB\n");
    check_contains(text, "2.1 TB written per day");
    free(text);
    text = text_of(print_short);
    check_contains(text, "plan: 1.0M parameters; DEVICE 2.000 GB");
    check_contains(text, "store: /proc/none, on proc (proc, mounted at /proc)\n");
    free(text);
    text = text_of(cli_plan_print_tape);
    check_string(text, "READ layer 0\nFWD layer 0\n");
    free(text);
}

TEST_MAIN({"mount_points", mount_points}, {"plans", plans})
