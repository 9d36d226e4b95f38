/* user.c: a program that uses the installed tide; exits with 0 if that works. */
#include <stdio.h>
#include <string.h>
#include <tide/tide.h>

static int lines;

static void count_line(void *user, uint32_t level, const char *line)
{
    (void)user;
    (void)level;
    (void)line;
    lines++;
}

int main(void)
{
    struct tide_build build = {.struct_bytes = sizeof build};
    struct tide_context_options options = {
        .struct_bytes = sizeof options, .log_level = TIDE_LOG_DEBUG, .log = count_line};
    struct tide_context *context;
    struct tide_device_info info = {.struct_bytes = sizeof info};

    if (tide_build_info(&build) != 0 || tide_context_create(&options, &context) != 0 ||
        tide_device_describe(context, "cpu", &info) != 0) {
        fprintf(stderr, "%s\n", tide_last_error());
        return 1;
    }
    printf("%s %s\n", build.version, info.name);
    int failed = tide_device_describe(context, "abacus", &info) == 0 ||
                 strstr(tide_last_error(), "abacus") == NULL || lines == 0;
    tide_context_destroy(context);
    return failed;
}
