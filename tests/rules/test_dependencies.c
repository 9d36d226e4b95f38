/* test_dependencies.c: enforces which files may include a header. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/test.h"
#include "tests/rules/tree.h"

/* The first row whose folder contains a file applies to the file. */
static const struct dependency {
    const char *from;
    const char *to[12];
} dependencies[] = {
    {"include/tide/", {"include/tide/"}},
    {"core/base/", {"core/base/"}},
    {"core/json/", {"core/json/", "core/base/"}},
    {"core/config/", {"core/config/", "core/json/", "core/base/"}},
    {"core/dev/", {"core/dev/", "core/base/"}},
    {"core/coll/", {"core/coll/", "core/dev/", "core/base/"}},
    {"aio/", {"aio/", "core/base/"}},
    {"cpu_adam/", {"cpu_adam/", "core/base/"}},
    {"kernels/", {"kernels/", "core/dev/", "core/base/"}},
    {"offload/blocks/", {"offload/blocks/", "core/base/"}},
    {"offload/model/", {"offload/model/", "offload/blocks/", "kernels/", "core/", "include/tide/"}},
    {"offload/plan/",
     {"offload/plan/", "offload/blocks/", "offload/model/", "kernels/", "core/", "include/tide/"}},
    {"offload/store/",
     {"offload/store/", "offload/plan/", "offload/blocks/", "offload/model/", "kernels/", "aio/",
      "cpu_adam/", "core/", "include/tide/"}},
    {"offload/cache/", {"offload/cache/", "aio/", "core/dev/", "core/base/"}},
    {"offload/doctor/",
     {"offload/doctor/", "offload/api/", "kernels/", "aio/", "cpu_adam/", "core/",
      "include/tide/"}},
    {"offload/", {"offload/", "kernels/", "aio/", "cpu_adam/", "core/", "include/tide/"}},
    {"tools/ds_nvme_bench", {"tools/", "aio/", "core/json/", "core/base/", "include/tide/"}},
    {"tools/", {"tools/", "core/config/", "core/json/", "core/base/", "include/tide/"}},
    {"docs/", {"include/tide/"}},
    {"tests/", {""}},
};

/* A foreign header (a prefix, if it ends in '*'), its wrapper, and the most files that may include
 * it. */
static const struct wrapper {
    const char *header;
    const char *place;
    int files_max;
} wrappers[] = {
    {"liburing.h", "aio/", 1},
    {"libaio.h", "aio/", 1},
    {"cuda*", "core/dev/dev_cuda", 2},
    {"cuda*", "tests/dev/fake_cuda.c", 1},
    {"cuda*", "kernels/cuda/", 1000},
    {"cublas*", "kernels/cuda/", 1000},
    {"nvml.h", "core/dev/dev_cuda.c", 1},
    {"mma.h", "kernels/cuda/", 1000},
    {"cooperative_groups*", "kernels/cuda/", 1000},
    {"nccl.h", "core/coll/", 1},
    {"nccl.h", "tests/cuda/fake_nccl.c", 1},
    {"mpi.h", "core/coll/", 1},
    {"mpi.h", "tests/api/mpi_application.c", 1},
    {"mpi.h", "tests/coll/test_module.c", 1},
    {"mpi.h", "tests/bench/bench_coll_mpi.c", 1},
    {"hwloc*", "core/base/", 1},
    {"numa.h", "core/base/", 1},
    {"numaif.h", "core/base/", 1},
    {"dnnl*", "kernels/", 1},
    {"oneapi/*", "kernels/", 1},
    {"xxhash.h", "core/base/", 1},
    {"xxh_x86dispatch.h", "core/base/hash.c", 1},
    {"pcre2.h", "tools/text/", 1},
    {"utf8proc.h", "tools/text/", 1},
    {"zlib.h", "tools/text/", 1},
    {"zstd.h", "tools/text/", 1},
};

static const char *const native[] = {
    "assert.h",   "ctype.h",    "errno.h",       "float.h",     "fenv.h",      "inttypes.h",
    "iso646.h",   "limits.h",   "locale.h",      "math.h",      "setjmp.h",    "signal.h",
    "stdalign.h", "stdarg.h",   "stdatomic.h",   "stdbool.h",   "stddef.h",    "stdint.h",
    "stdio.h",    "stdlib.h",   "stdnoreturn.h", "string.h",    "strings.h",   "tgmath.h",
    "threads.h",  "time.h",     "uchar.h",       "wchar.h",     "dirent.h",    "dlfcn.h",
    "endian.h",   "fcntl.h",    "ftw.h",         "getopt.h",    "glob.h",      "fnmatch.h",
    "langinfo.h", "libgen.h",   "malloc.h",      "mntent.h",    "netdb.h",     "poll.h",
    "pthread.h",  "pwd.h",      "regex.h",       "sched.h",     "semaphore.h", "spawn.h",
    "termios.h",  "ucontext.h", "unistd.h",      "elf.h",       "link.h",      "execinfo.h",
    "omp.h",      "ifaddrs.h",  "cpuid.h",       "immintrin.h", "x86intrin.h", "arm_neon.h",
};

static bool is_native(const char *header)
{
    static const char *const folders[] = {"sys/", "linux/",   "asm/",      "arpa/",
                                          "net/", "netinet/", "sanitizer/"};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        if (rules_starts(header, folders[i])) {
            return true;
        }
    }
    for (size_t i = 0; i < sizeof native / sizeof native[0]; i++) {
        if (strcmp(header, native[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool names(const char *pattern, const char *header)
{
    size_t length = strlen(pattern);
    return pattern[length - 1] == '*' ? strncmp(pattern, header, length - 1) == 0
                                      : strcmp(pattern, header) == 0;
}

static const struct dependency *dependency_of(const char *path)
{
    for (size_t i = 0; i < sizeof dependencies / sizeof dependencies[0]; i++) {
        if (rules_starts(path, dependencies[i].from)) {
            return &dependencies[i];
        }
    }
    return NULL;
}

static bool reaches(const struct dependency *row, const char *target)
{
    for (size_t i = 0; i < 12 && row->to[i] != NULL; i++) {
        if (rules_starts(target, row->to[i])) {
            return true;
        }
    }
    return false;
}

/* Checks an include of a file of this tree. */
static void check_own(const struct rules_tree *tree, struct rules_report *report,
                      const struct rules_file *file, size_t line, const char *target)
{
    const struct dependency *row = dependency_of(file->path);
    if (rules_find(tree, target) == NULL) {
        rules_violation(report, file, line, "includes \"%s\", which is not a path from the root",
                        target);
    } else if (row == NULL) {
        rules_violation(report, file, line, "is in a folder without a row of dependencies");
    } else if (!reaches(row, target)) {
        rules_violation(report, file, line, "includes \"%s\", which its folder may not include",
                        target);
    }
}

static void check_foreign(struct rules_report *report, int *wrapper_count,
                          const struct rules_file *file, size_t line, const char *header)
{
    bool known = false;
    for (size_t i = 0; i < sizeof wrappers / sizeof wrappers[0]; i++) {
        bool same = names(wrappers[i].header, header);
        known |= same;
        if (same && rules_starts(file->path, wrappers[i].place)) {
            wrapper_count[i]++;
            if (wrapper_count[i] > wrappers[i].files_max) {
                rules_violation(report, file, line, "is a second wrapper of <%s>", header);
            } else if (rules_ends(file->path, ".h")) {
                rules_violation(report, file, line, "a header includes <%s>; only a .c may",
                                header);
            }
            return;
        }
    }
    rules_violation(report, file, line,
                    known ? "includes <%s>, whose wrapper is another file"
                          : "includes <%s>, a library without a wrapper",
                    header);
}

/* Returns whether a line is an include, and the included name. */
static bool parse_include(const char *line, char *name, size_t bytes, bool *angle)
{
    char mark;
    char text[512];
    line += strspn(line, " \t");
    if (sscanf(line, "# include %c%511[^>\"\n]", &mark, text) != 2 ||
        (mark != '<' && mark != '"')) {
        return false;
    }
    *angle = mark == '<';
    snprintf(name, bytes, "%s", text);
    return true;
}

static void check_file(const struct rules_tree *tree, struct rules_report *report,
                       int *wrapper_count, const struct rules_file *file)
{
    bool test = rules_starts(file->path, "tests/");
    size_t at = 1;
    for (const char *line = file->code; line != NULL; at++) {
        char name[512];
        char own[600];
        bool angle;
        if (parse_include(line, name, sizeof name, &angle)) {
            if (!angle) {
                check_own(tree, report, file, at, name);
            } else if (rules_starts(name, "tide/")) {
                snprintf(own, sizeof own, "include/%s", name);
                check_own(tree, report, file, at, own);
            } else if (!is_native(name) && !test) {
                check_foreign(report, wrapper_count, file, at, name);
            }
        }
        line = strchr(line, '\n');
        line = line == NULL ? NULL : line + 1;
    }
}

static bool is_c(const char *path)
{
    return rules_ends(path, ".c") || rules_ends(path, ".h") || rules_ends(path, ".cu") ||
           rules_ends(path, ".cuh") || rules_ends(path, ".inc");
}

static void rule_dependencies(const struct rules_tree *tree, struct rules_report *report)
{
    int wrapper_count[sizeof wrappers / sizeof wrappers[0]] = {0};
    for (size_t i = 0; i < tree->count; i++) {
        if (is_c(tree->files[i].path)) {
            check_file(tree, report, wrapper_count, &tree->files[i]);
        }
    }
}

static void dependencies_hold(void)
{
    rules_check_tree(rule_dependencies);
}

/* Only the planted violations are found. */
static void violations_are_found(void)
{
    static const struct rules_plant plants[] = {
        {"core/base/a.h", "#include <stdint.h>\n"},
        {"core/base/up.c", "#include \"aio/q.h\"\n"},
        {"core/base/short.c", "#include \"a.h\"\n"},
        {"core/base/first.c", "#include <stdio.h>\n\n#include <hwloc.h>\n"},
        {"core/base/second.c", "#include <hwloc.h>\n"},
        {"core/base/strange.c", "#  include <curl/curl.h>\n"},
        {"aio/q.h", "#include \"core/base/a.h\"\n/* #include \"tools/t.h\" */\n"},
        {"aio/far.c", "#include <hwloc.h>\n"},
        {"aio/ring.h", "#include <liburing.h>\n"},
        {"offload/plan/p.h", "#include \"offload/model/m.h\"\n"},
        {"offload/model/m.h", "#include \"offload/plan/p.h\"\n"},
        {"offload/blocks/b.h", "#include \"offload/model/m.h\"\n"},
        {"tools/t.h", "#include <tide/t.h>\n"},
        {"tools/deep.c", "#include \"offload/model/m.h\"\n"},
        {"tools/ds_nvme_bench.c", "#include \"aio/q.h\"\n"},
        {"include/tide/t.h", "#include \"core/base/a.h\"\n"},
        {"tests/x/t.c", "#include <mpi.h>\n#include \"tools/t.h\"\n"},
        {"attic/old.c", "#include \"core/base/a.h\"\n"},
    };
    const char *text = rules_check_planted(rule_dependencies, plants,
                                           sizeof plants / sizeof plants[0], 11);
    check_contains(text, "core/base/up.c:1: includes \"aio/q.h\", which its folder may not");
    check_contains(text, "core/base/short.c:1: includes \"a.h\", which is not a path");
    check_contains(text, "core/base/second.c:1: is a second wrapper of <hwloc.h>");
    check_contains(text, "core/base/strange.c:1: includes <curl/curl.h>, a library without");
    check_contains(text, "aio/far.c:1: includes <hwloc.h>, whose wrapper is another file");
    check_contains(text, "aio/ring.h:1: a header includes <liburing.h>");
    check_contains(text,
                   "offload/model/m.h:1: includes \"offload/plan/p.h\", which its folder may not");
    check_contains(
        text, "offload/blocks/b.h:1: includes \"offload/model/m.h\", which its folder may not");
    check_contains(text,
                   "tools/deep.c:1: includes \"offload/model/m.h\", which its folder may not");
    check_contains(text,
                   "include/tide/t.h:1: includes \"core/base/a.h\", which its folder may not");
    check_contains(text, "attic/old.c:1: is in a folder without");
}

TEST_MAIN({"dependencies_hold", dependencies_hold}, {"violations_are_found", violations_are_found})
