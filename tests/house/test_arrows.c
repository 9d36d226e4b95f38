/* test_arrows.c: reads every #include and enforces which folder may see which, and that each
 * foreign library has one door. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/test.h"
#include "tests/house/house.h"

/* The first row whose folder a file stands in says what else that file may include. */
static const struct arrow {
    const char *from;
    const char *to[12];
} arrows[] = {
    {"include/tide/", {"include/tide/"}},
    {"core/base/", {"core/base/"}},
    {"core/dev/", {"core/dev/", "core/base/"}},
    {"core/coll/", {"core/coll/", "core/dev/", "core/base/"}},
    {"aio/", {"aio/", "core/base/"}},
    {"cpu_adam/", {"cpu_adam/", "core/base/"}},
    {"kernels/", {"kernels/", "core/dev/", "core/base/"}},
    {"offload/model/", {"offload/model/", "kernels/", "core/", "include/tide/"}},
    {"offload/plan/", {"offload/plan/", "offload/model/", "kernels/", "core/", "include/tide/"}},
    {"offload/store/",
     {"offload/store/", "offload/plan/", "offload/model/", "kernels/", "aio/", "cpu_adam/", "core/",
      "include/tide/"}},
    {"offload/doctor/",
     {"offload/doctor/", "offload/api/", "kernels/", "aio/", "cpu_adam/", "core/",
      "include/tide/"}},
    {"offload/", {"offload/", "kernels/", "aio/", "cpu_adam/", "core/", "include/tide/"}},
    {"tools/ds_nvme_bench", {"tools/", "aio/", "core/base/", "include/tide/"}},
    {"tools/", {"tools/", "core/base/", "include/tide/"}},
    {"docs/", {"include/tide/"}},
    {"tests/", {""}},
};

/* A foreign header (or all that start so, with a '*'), the place of its door, and how many files
 * may open it. */
static const struct door {
    const char *header;
    const char *place;
    int files_max;
} doors[] = {
    {"liburing.h", "aio/", 1},         {"libaio.h", "aio/", 1},
    {"cuda*", "core/dev/dev_cuda", 2}, {"cuda*", "tests/dev/fake_cuda.c", 1},
    {"cuda*", "kernels/cuda/", 1000},  {"cublas*", "kernels/cuda/", 1000},
    {"cudnn*", "kernels/cuda/", 1},    {"nvml.h", "core/dev/dev_cuda.c", 1},
    {"mma.h", "kernels/cuda/", 1000},  {"cooperative_groups*", "kernels/cuda/", 1000},
    {"nccl.h", "core/coll/", 1},       {"mpi.h", "core/coll/", 1},
    {"hwloc*", "core/base/", 1},       {"numa.h", "core/base/", 1},
    {"numaif.h", "core/base/", 1},     {"dnnl*", "kernels/", 1},
    {"oneapi/*", "kernels/", 1},       {"jansson.h", "core/base/", 1},
    {"xxhash.h", "core/base/", 1},     {"xxh_x86dispatch.h", "core/base/hash.c", 1},
    {"pcre2.h", "tools/text/", 1},     {"utf8proc.h", "tools/text/", 1},
    {"zlib.h", "tools/text/", 1},      {"zstd.h", "tools/text/", 1},
};

/* What the C library, the compiler and the kernel bring. */
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
        if (house_starts(header, folders[i])) {
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

static const struct arrow *arrow_of(const char *path)
{
    for (size_t i = 0; i < sizeof arrows / sizeof arrows[0]; i++) {
        if (house_starts(path, arrows[i].from)) {
            return &arrows[i];
        }
    }
    return NULL;
}

static bool reaches(const struct arrow *arrow, const char *target)
{
    for (size_t i = 0; i < 12 && arrow->to[i] != NULL; i++) {
        if (house_starts(target, arrow->to[i])) {
            return true;
        }
    }
    return false;
}

/* An include of one of our own files, named from the root. */
static void check_own(const struct house_tree *tree, struct house_report *report,
                      const struct house_file *file, size_t line, const char *target)
{
    const struct arrow *arrow = arrow_of(file->path);
    if (house_find(tree, target) == NULL) {
        house_breach(report, file, line, "includes \"%s\", which is no file from the root", target);
    } else if (arrow == NULL) {
        house_breach(report, file, line, "stands in no room that the arrows know");
    } else if (!reaches(arrow, target)) {
        house_breach(report, file, line, "includes \"%s\": no arrow leads there", target);
    }
}

static void check_foreign(struct house_report *report, int *opened, const struct house_file *file,
                          size_t line, const char *header)
{
    bool known = false;
    for (size_t i = 0; i < sizeof doors / sizeof doors[0]; i++) {
        bool same = names(doors[i].header, header);
        known |= same;
        if (same && house_starts(file->path, doors[i].place)) {
            opened[i]++;
            if (opened[i] > doors[i].files_max) {
                house_breach(report, file, line, "opens a second door to <%s>", header);
            } else if (house_ends(file->path, ".h")) {
                house_breach(report, file, line, "a header opens <%s>; a .c must", header);
            }
            return;
        }
    }
    house_breach(report, file, line,
                 known ? "includes <%s>, whose door stands elsewhere"
                       : "includes <%s>, a library without a door",
                 header);
}

/* Reads one line; true with the name between the quotes or angles where it is an include. */
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

static void check_file(const struct house_tree *tree, struct house_report *report, int *opened,
                       const struct house_file *file)
{
    bool test = house_starts(file->path, "tests/");
    size_t at = 1;
    for (const char *line = file->code; line != NULL; at++) {
        char name[512];
        char own[600];
        bool angle;
        if (parse_include(line, name, sizeof name, &angle)) {
            if (!angle) {
                check_own(tree, report, file, at, name);
            } else if (house_starts(name, "tide/")) {
                snprintf(own, sizeof own, "include/%s", name);
                check_own(tree, report, file, at, own);
            } else if (!is_native(name) && !test) {
                check_foreign(report, opened, file, at, name);
            }
        }
        line = strchr(line, '\n');
        line = line == NULL ? NULL : line + 1;
    }
}

static bool is_c(const char *path)
{
    return house_ends(path, ".c") || house_ends(path, ".h") || house_ends(path, ".cu") ||
           house_ends(path, ".cuh") || house_ends(path, ".inc");
}

static void rule_arrows(const struct house_tree *tree, struct house_report *report)
{
    int opened[sizeof doors / sizeof doors[0]] = {0};
    for (size_t i = 0; i < tree->count; i++) {
        if (is_c(tree->files[i].path)) {
            check_file(tree, report, opened, &tree->files[i]);
        }
    }
}

/* Every include of the checkout follows an arrow and every foreign header has one door. */
static void arrows_hold(void)
{
    house_check_tree(rule_arrows);
}

/* Each kind of breach is found where it was planted, and what is allowed is not. */
static void breaches_are_found(void)
{
    static const struct house_plant plants[] = {
        {"core/base/a.h", "#include <stdint.h>\n"},
        {"core/base/up.c", "#include \"aio/q.h\"\n"},
        {"core/base/short.c", "#include \"a.h\"\n"},
        {"core/base/json.c", "#include <stdio.h>\n\n#include <jansson.h>\n"},
        {"core/base/second.c", "#include <jansson.h>\n"},
        {"core/base/strange.c", "#  include <curl/curl.h>\n"},
        {"aio/q.h", "#include \"core/base/a.h\"\n/* #include \"tools/t.h\" */\n"},
        {"aio/far.c", "#include <jansson.h>\n"},
        {"aio/ring.h", "#include <liburing.h>\n"},
        {"offload/plan/p.h", "#include \"offload/model/m.h\"\n"},
        {"offload/model/m.h", "#include \"offload/plan/p.h\"\n"},
        {"tools/t.h", "#include <tide/t.h>\n"},
        {"tools/deep.c", "#include \"offload/model/m.h\"\n"},
        {"tools/ds_nvme_bench.c", "#include \"aio/q.h\"\n"},
        {"include/tide/t.h", "#include \"core/base/a.h\"\n"},
        {"tests/x/t.c", "#include <mpi.h>\n#include \"tools/t.h\"\n"},
        {"attic/old.c", "#include \"core/base/a.h\"\n"},
    };
    const char *text = house_check_planted(rule_arrows, plants, sizeof plants / sizeof plants[0],
                                           10);
    check_contains(text, "core/base/up.c:1: includes \"aio/q.h\": no arrow");
    check_contains(text, "core/base/short.c:1: includes \"a.h\", which is no file");
    check_contains(text, "core/base/second.c:1: opens a second door to <jansson.h>");
    check_contains(text, "core/base/strange.c:1: includes <curl/curl.h>, a library without");
    check_contains(text, "aio/far.c:1: includes <jansson.h>, whose door stands elsewhere");
    check_contains(text, "aio/ring.h:1: a header opens <liburing.h>");
    check_contains(text, "offload/model/m.h:1: includes \"offload/plan/p.h\": no arrow");
    check_contains(text, "tools/deep.c:1: includes \"offload/model/m.h\": no arrow");
    check_contains(text, "include/tide/t.h:1: includes \"core/base/a.h\": no arrow");
    check_contains(text, "attic/old.c:1: stands in no room");
}

TEST_MAIN({"arrows_hold", arrows_hold}, {"breaches_are_found", breaches_are_found})
