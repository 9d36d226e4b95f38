/* version.c: gets the version from libtide. */
#include "tools/tide/version.h"

#include <string.h>
#include <tide/tide.h>

#include "core/base/cpus.h"
#include "tools/tide/cli.h"

static void print_backends(FILE *stream)
{
    const char *task = NULL;
    struct tide_backend backend = {.struct_bytes = sizeof backend};
    for (unsigned i = 0; tide_backend_at(i, &backend) == 0; i++) {
        if (task == NULL || strcmp(task, backend.task) != 0) {
            fprintf(stream, "%s%s:", task != NULL ? "\n" : "", backend.task);
            task = backend.task;
        }
        fprintf(stream, " %s%s%s", backend.built ? "" : "(no ", backend.name,
                backend.built ? "" : ")");
    }
    fprintf(stream, "\n");
}

void cli_print_version(FILE *stream)
{
    struct tide_build build = {.struct_bytes = sizeof build};
    if (tide_build_info(&build) == 0) {
        fprintf(stream, "tide %s\ncommit %s\ncompiler %s, %s\n", build.version, build.commit,
                build.compiler, build.target);
    }
    char flags[128];
    fprintf(stream, "instructions: %s%s\n",
            core_cpu_flags_print(core_cpu_flags(CORE_CPU_ALL), flags, sizeof flags),
            core_cpu_flags_limited() ? " (TIDE_ISA)" : "");
    print_backends(stream);
    struct cli_table *table = NULL;
    struct tide_library library = {.struct_bytes = sizeof library};
    if (cli_table_create(2, &table) != 0) {
        return;
    }
    for (unsigned i = 0; tide_library_at(i, &library) == 0; i++) {
        cli_table_add(table, (const char *const[]){library.name, library.state});
    }
    fprintf(stream, "libraries:\n");
    cli_table_print(table, stream, "  ");
    cli_table_destroy(table);
}
