/* test_install.c: programs outside the tree use what `meson install` installs. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "tests/harness/test.h"

/* Runs a line of shell with output in `text`; returns the exit status. */
static int shell(char *text, size_t bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int shell(char *text, size_t bytes, const char *format, ...)
{
    char line[4096];
    va_list list;
    va_start(list, format);
    int length = vsnprintf(line, sizeof line, format, list);
    va_end(list);
    check_int(length, <, sizeof line);
    FILE *pipe = popen(line, "r");
    check_true(pipe != NULL);
    size_t used = fread(text, 1, bytes - 1, pipe);
    text[used] = '\0';
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool have(const char *program)
{
    char text[64];
    return shell(text, sizeof text, "command -v %s", program) == 0;
}

static const char *build_root(void)
{
    const char *root = getenv("TIDE_BUILD_ROOT");
    if (root == NULL) {
        test_skip("TIDE_BUILD_ROOT is not set: run it through meson test");
    }
    return root;
}

/* Installs once, and returns the root of the installation. */
static const char *installed(void)
{
    static char root[512];
    static char text[65536];
    if (TEST_SLOW) {
        test_skip("a sanitized library needs a sanitized program");
    }
    if (!have("pkg-config") || !have("meson")) {
        test_skip("pkg-config or meson is not installed");
    }
    if (root[0] == '\0') {
        snprintf(root, sizeof root, "%s/root", test_directory());
        int status = shell(text, sizeof text,
                           "meson install -C '%s' --no-rebuild --quiet --destdir '%s' 2>&1",
                           build_root(), root);
        if (status != 0) {
            test_note("%s", text);
        }
        check_int(status, ==, 0);
    }
    return root;
}

/* Returns the path of a file in the folder of the tests. */
static const char *in_tree(const char *name)
{
    static char path[1024];
    snprintf(path, sizeof path, "%s/%s", test_root(), name);
    return path;
}

/* Compiles a program with pkg-config's flags for the installed tide, and runs the program with a
 * folder. */
static void compile_and_run(const char *compiler, const char *flags, const char *source,
                            const char *expected)
{
    static char text[65536];
    const char *name = strrchr(source, '/') + 1;
    const char *root = installed();
    int status = shell(text, sizeof text,
                       "exec 2>&1; set -e; pc=$(dirname \"$(find '%s' -name tide.pc)\");"
                       "export PKG_CONFIG_SYSROOT_DIR='%s' PKG_CONFIG_LIBDIR=\"$pc\";"
                       "%s %s -Wall -Wextra -Wpedantic -Werror $(pkg-config --cflags tide) '%s'"
                       " -o '%s/%s.out' $(pkg-config --libs tide);"
                       "LD_LIBRARY_PATH=$(dirname \"$pc\") '%s/%s.out' '%s/store'",
                       root, root, compiler, flags, source, test_directory(), name,
                       test_directory(), name, test_directory());
    if (status != 0) {
        test_note("%s", text);
    }
    check_int(status, ==, 0);
    check_contains(text, expected);
}

/* C programs work with the installed library. */
static void c_program(void)
{
    compile_and_run("cc", "-std=c17", in_tree("install/user.c"), " cpu\n");
    compile_and_run("cc", "-std=c17", in_tree("../docs/blocks.c"),
                    "48 blocks in 17 MB of memory; ");
    compile_and_run("cc", "-std=c17", in_tree("../docs/optimizer.c"), " at last\n");
}

/* The program of docs/api.md works, too. */
static void guide(void)
{
    char text[256];
    const int status = shell(
        text, sizeof text,
        "awk '/^```/ { if (on && program) { printf \"%%s\", lines; exit } on = !on; lines = \"\"; "
        "program = 0; next } on { lines = lines $0 \"\\n\"; program += /^int main/ }' '%s' | "
        "sed 's:/nvme/blocks:%s/guide:' > '%s/guide.c' && grep -c tide_blocks_put '%s/guide.c'",
        in_tree("../docs/api.md"), test_directory(), test_directory(), test_directory());
    check_int(status, ==, 0);
    compile_and_run("cc", "-std=c17", test_path("guide.c"), "");
}

/* C++ programs work with the installed library. */
static void cxx_program(void)
{
    if (!have("c++")) {
        test_skip("no C++ compiler is installed");
    }
    compile_and_run("c++", "-std=c++11", in_tree("install/user.cc"), " cpu\n");
    compile_and_run("c++", "-std=c++20 -Wold-style-cast", in_tree("install/user.cc"), " cpu\n");
    compile_and_run("c++", "-std=c++11", in_tree("../docs/blocks.cc"), "sum 7340032\n");
    compile_and_run("c++", "-std=c++11", in_tree("../docs/optimizer.cc"), " after 100 updates\n");
}

/* CMake builds programs with the installed library. */
static void cmake(void)
{
    static char text[65536];
    const char *root = installed();
    if (!have("cmake") || !have("c++")) {
        test_skip("cmake or a C++ compiler is not here");
    }
    int status = shell(
        text, sizeof text,
        "exec 2>&1; set -e; pc=$(dirname \"$(find '%s' -name tide.pc)\");"
        "export PKG_CONFIG_SYSROOT_DIR='%s' PKG_CONFIG_LIBDIR=\"$pc\";"
        "cmake -S \"$(dirname \"$(find '%s' -name CMakeLists.txt)\")\" -B '%s/cmake';"
        "cmake --build '%s/cmake';"
        "LD_LIBRARY_PATH=$(dirname \"$pc\") '%s/cmake/optimizer_c' '%s/store'",
        root, root, root, test_directory(), test_directory(), test_directory(), test_directory());
    if (status != 0) {
        test_note("%s", text);
    }
    check_int(status, ==, 0);
    check_contains(text, " at last\n");
}

/* The installed command finds its library. */
static void command(void)
{
    static char text[65536];
    int status = shell(text, sizeof text,
                       "unset LD_LIBRARY_PATH; \"$(find '%s' -type f -name tide)\" --version 2>&1",
                       installed());
    if (status != 0) {
        test_note("%s", text);
    }
    check_int(status, ==, 0);
    check_contains(text, "tide 0.");
}

/* The prefix has headers and pkg-config's file, but no static library or test. */
static void contents(void)
{
    static char text[65536];
    const char *root = installed();
    shell(text, sizeof text, "cd '%s' && find . ! -type d | sed 's:.*/\\(lib\\|include\\):\\1:'",
          root);
    check_contains(text, "include/tide/tide.h\n");
    check_contains(text, "libtide.so\n");
    check_contains(text, "libtide.so.0\n");
    check_contains(text, "pkgconfig/tide.pc\n");
    check_true(strstr(text, ".a\n") == NULL);
    check_true(strstr(text, "test") == NULL);
    if (have("readelf")) {
        shell(text, sizeof text, "readelf -d \"$(find '%s' -name libtide.so)\"", root);
        check_contains(text, "[libtide.so.0]");
    }
}

/* Prints the functions of the public headers, sorted. */
static const char headers_functions[] =
    "cat '%s'/../include/tide/*.h | tr '\n' ' ' | grep -o 'TIDE_API [^;]*;' | "
    "grep -o 'tide_[a-z0-9_]*(' | tr -d '(' | sort -u";

/* The library exports the functions of the public headers, with versions. */
static void symbols(void)
{
    static char promised[16384];
    static char exported[16384];
    if (!have("nm")) {
        test_skip("nm is not installed");
    }
    check_int(shell(promised, sizeof promised, headers_functions, test_root()), ==, 0);
    int status = shell(exported, sizeof exported,
                       "nm -D --defined-only --with-symbol-versions '%s/offload/api/libtide.so' | "
                       "awk '$2 != \"A\" { print $3 }' | sort -u",
                       build_root());
    check_int(status, ==, 0);
    char *at = exported;
    size_t count = 0;
    for (const char *name = strtok(promised, "\n"); name != NULL; name = strtok(NULL, "\n")) {
        const size_t length = strlen(name);
        char *end = strchr(at, '\n');
        if (end == NULL || strncmp(at, name, length) != 0 ||
            strncmp(at + length, "@@TIDE_0.", 9) != 0) {
            test_fail(__FILE__, __LINE__,
                      "the headers promise %s, and the library has %.60s: is it in tide.map?", name,
                      at);
        }
        at = end + 1;
        count++;
    }
    check_string(at, "");
    check_int(count, >=, 40);
}

/* A public function's comment says what it returns. */
static void contracts(void)
{
    static char text[16384];
    check_int(shell(text, sizeof text, "cd '%s' && awk -f api/contracts.awk ../include/tide/*.h",
                    test_root()),
              ==, 0);
    check_string(text, "");
}

/* Calls of the CUDA runtime, which also has global state. */
static const char cuda_calls[] = " dlclose exit setenv ";

static bool is_cuda_call(const char *name)
{
    char word[64];
    snprintf(word, sizeof word, " %s ", name);
    return strstr(cuda_calls, word) != NULL;
}

static bool has_cuda_runtime(void)
{
    static char text[64];
    check_int(
        shell(text, sizeof text,
              "nm '%s/offload/api/libtide.so' | grep -cE ' [tTW] cuda(Malloc|GetDevice)$' || true",
              build_root()),
        ==, 0);
    return atoi(text) > 0;
}

/* Apart from the exceptions below, the library calls no function that ends the process, prints, or
 * changes global settings. */
static void needs(void)
{
    static const char *const refused[] = {
        "exit",      "_Exit",   "quick_exit", "abort",     "atexit",   "signal",  "sigaction",
        "raise",     "setenv",  "putenv",     "unsetenv",  "clearenv", "umask",   "chdir",
        "setlocale", "system",  "fork",       "setrlimit", "printf",   "vprintf", "puts",
        "perror",    "putchar", "stdout",     "stderr",    "stdin",    "strtok",  "rand",
        "random",    "srand",   "localtime",  "gmtime",    "ctime",    "getopt",  "dlclose"};
    static char text[65536];
    if (!have("nm") || !have("readelf")) {
        test_skip("nm or readelf is not installed");
    }
    check_int(shell(text, sizeof text,
                    "nm -D --undefined-only '%s/offload/api/libtide.so' | "
                    "awk '{ sub(/@.*/, \"\", $2); print $2 }'",
                    build_root()),
              ==, 0);
    check_contains(text, "pthread_create\n");
    const bool cuda = has_cuda_runtime();
    for (char *name = strtok(text, "\n"); name != NULL; name = strtok(NULL, "\n")) {
        for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
            if (strcmp(name, refused[i]) == 0 && !(cuda && is_cuda_call(name))) {
                test_fail(__FILE__, __LINE__, "libtide calls %s", name);
            }
        }
    }
    check_int(shell(text, sizeof text,
                    "readelf -rW '%s/offload/api/libtide.so' | grep 'JUMP.* tide_' || true",
                    build_root()),
              ==, 0);
    check_string(text, "");
    check_int(
        shell(text, sizeof text,
              "cd '%s' && find core aio cpu_adam kernels offload -name '*.o' -exec nm -A -u {} + | "
              "awk '$NF == \"_exit\" { n = split($1, part, \"/\"); print part[n] }'",
              build_root()),
        ==, 0);
    check_string(text, "tcp.c.o:\n");
}

/* Checks that contexts share only this writable data: values found once (`known`, `policy`), the
 * process's heartbeat (`process`), connections between processes (`tcp`), and engines and ranks
 * that could not be freed (`lost_engines`, `lost_ranks`). */
static void shared_state(void)
{
    static char text[65536];
    if (!have("objdump") || !have("nm")) {
        test_skip("objdump or nm is not installed");
    }
    check_int(
        shell(text, sizeof text,
              "nm -D '%s/offload/api/libtide.so' | grep -cE '__(asan|tsan|ubsan|sanitizer|gcov)_'"
              " || true",
              build_root()),
        ==, 0);
    if (atoi(text) > 0) {
        test_skip("an instrumented library has state of its tools");
    }
    if (has_cuda_runtime()) {
        test_skip("the CUDA runtime in the library has state of its own");
    }
    check_int(
        shell(
            text, sizeof text,
            "objdump -t '%s/offload/api/libtide.so' | "
            "awk '($4 == \".data\" || $4 == \".bss\") && $3 != \"d\" { sub(/\\.[0-9]+$/, "
            "\"\", $NF); print $NF }' | sort | grep -vxE "
            "'__.*|_edata|_end|completed|known|policy|process|tcp|lost_engines|lost_ranks' || true",
            build_root()),
        ==, 0);
    check_string(text, "");
}

TEST_MAIN({"c_program", c_program}, {"guide", guide}, {"cxx_program", cxx_program},
          {"cmake", cmake}, {"command", command}, {"contents", contents}, {"symbols", symbols},
          {"contracts", contracts}, {"needs", needs}, {"shared_state", shared_state})
