/* test_example.c: runs docs/train.c. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/api/example.h"
#include "tests/api/world.h"

static struct world world;

static double number_of(const char *text, const char *step, const char *name)
{
    const char *at = strstr(text, step);
    check_true(at != NULL);
    at = strstr(at, name);
    check_true(at != NULL);
    return strtod(at + strlen(name), NULL);
}

static double loss_of(const char *text, const char *step)
{
    return number_of(text, step, "loss ");
}

/* The loss falls, and the written model can be trained again. */
static void trains(void)
{
    char words[2000];
    static char text[65536];
    world_init(&world);
    snprintf(words, sizeof words, "'%s' '%s' '%s/out'", world.model, world.store, test_directory());
    const int status = example_run("docs_train", "", words, text, sizeof text);
    if (status != 0) {
        test_note("%s", text);
    }
    check_int(status, ==, 0);
    check_contains(text, "load: done");
    check_contains(text, "parameters; device ");
    check_double(loss_of(text, "step 1 "), >, 6);
    check_double(loss_of(text, "step 20 "), <, 0.5 * loss_of(text, "step 1 "));
    check_double(number_of(text, "step 20 ", "written "), >, 1);
    check_true(!world_exists(world.store));
    snprintf(words, sizeof words, "'%s/out' '%s' '%s/further'", test_directory(), world.store,
             test_directory());
    check_int(example_run("docs_train", "", words, text, sizeof text), ==, 0);
    check_double(loss_of(text, "step 1 "), <, 3);
}

static void complains(void)
{
    char words[2000];
    static char text[65536];
    world_init(&world);
    check_int(example_run("docs_train", "", "", text, sizeof text), ==, 2);
    check_contains(text, "usage: ");
    snprintf(words, sizeof words, "/nowhere '%s' '%s/new'", world.store, test_directory());
    check_int(example_run("docs_train", "", words, text, sizeof text), ==, 1);
    check_contains(text, "/nowhere");
    snprintf(words, sizeof words, "'%s' '%s' '%s'", world.model, world.store, world.model);
    check_int(example_run("docs_train", "", words, text, sizeof text), ==, 1);
    check_contains(text, world.model);
    check_true(strstr(text, "step 1") == NULL);
}

TEST_MAIN({"trains", trains}, {"complains", complains})
