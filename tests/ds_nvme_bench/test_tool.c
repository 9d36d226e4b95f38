/* test_tool.c: the program as it is built: modes, exit codes, messages, files, and days when
 * everything is against it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/json.h"
#include "tests/harness/child.h"
#include "tests/harness/test.h"

static char *out_text; /* of the last run; freed by the next */
static char *err_text;

static const char *path_in(const char *name)
{
    static char path[4][512];
    static unsigned turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", test_directory(), name);
    return path[turn];
}

/* The directory that is measured, empty before and after. */
static const char *drive(void)
{
    const char *path = path_in("drive");
    check_true(mkdir(path, 0700) == 0 || errno == EEXIST);
    return path;
}

static void check_empty(const char *path)
{
    DIR *names = opendir(path);
    check_true(names != NULL);
    unsigned count = 0;
    while (readdir(names) != NULL) {
        count++;
    }
    closedir(names);
    check_uint(count, ==, 2);
}

static void redirect(int to, const char *path, int flags)
{
    int fd = open(path, flags, 0600);
    if (fd < 0 || dup2(fd, to) < 0) {
        _exit(126);
    }
    close(fd);
}

/* Starts a program of tools/ with the words of `arguments` (no quoting), after `prepare` in its
 * process. */
static pid_t start(const char *program, const char *arguments, void (*prepare)(void))
{
    static char words[1024];
    char *argv[40] = {NULL};
    static char path[512];
    const char *root = getenv("TIDE_BUILD_ROOT");
    snprintf(path, sizeof path, "%s/tools/%s", root != NULL ? root : "build", program);
    snprintf(words, sizeof words, "%s", arguments);
    argv[0] = path;
    char *rest = words;
    for (size_t i = 1; i < 39; i++) {
        argv[i] = strsep(&rest, " ");
    }
    const char *out = path_in("out");
    const char *err = path_in("err");
    pid_t child = fork();
    check_true(child >= 0);
    if (child == 0) {
        redirect(0, "/dev/null", O_RDONLY);
        redirect(1, out, O_WRONLY | O_CREAT | O_TRUNC);
        redirect(2, err, O_WRONLY | O_CREAT | O_TRUNC);
        if (prepare != NULL) {
            prepare();
        }
        execv(path, argv);
        _exit(127);
    }
    return child;
}

static int finish(pid_t child)
{
    int status = 0;
    size_t bytes = 0;
    check_int(waitpid(child, &status, 0), ==, child);
    free(out_text);
    free(err_text);
    out_text = NULL;
    err_text = NULL;
    check_int(core_file_read(path_in("out"), 1 << 22, &out_text, &bytes), ==, 0);
    check_int(core_file_read(path_in("err"), 1 << 22, &err_text, &bytes), ==, 0);
    check_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int run_prepared(const char *arguments, void (*prepare)(void))
{
    return finish(start("ds_nvme_bench", arguments, prepare));
}

static int run(const char *arguments)
{
    return run_prepared(arguments, NULL);
}

#define SMALL "--io_size 64M --runtime 0.3 --ramp_time 0 --loops 1 --queue_depth 4 "

/* "SMALL OPTIONS --nvme_dir DRIVE" */
static const char *with_drive(const char *options)
{
    static char arguments[8192];
    snprintf(arguments, sizeof arguments, "%s--nvme_dir %s %s", SMALL, drive(), options);
    return arguments;
}

static void check_plain(const char *text)
{
    for (const char *at = text; *at != '\0'; at++) {
        if (*at == '\033' || *at == '\r') {
            test_fail(__FILE__, __LINE__, "a control character in \"%s\"", text);
        }
    }
}

/* --help shows our options with an example, and neither the other spellings nor control characters. */
static void help(void)
{
    check_int(run("--help"), ==, 0);
    check_contains(out_text, "Example:\n  ds_nvme_bench --nvme_dir ");
    check_contains(out_text, "--emit-config FILE");
    check_true(strstr(out_text, "--iodepth") == NULL);
    check_string(err_text, "");
    check_plain(out_text);
    check_int(run("--version"), ==, 0);
    check_contains(out_text, "ds_nvme_bench 0.");
    check_contains(out_text, "backends:");
}

/* Every mode ends 0, says what it found on stdout, and leaves the directory empty. */
static void modes(void)
{
    static const struct {
        const char *options;
        const char *says;
    } rows[] = {
        {"--mode point --op read,rw --params 350M --tbw 600", "A model of 0.35B parameters"},
        {"--mode sweep --runtime 1", "Recommended: block "},
        {"--mode sweep --full --block_size 256K,1M --runtime 0.05", "%peak"},
        {"--mode verify --loops 2", "came back as they were written"},
        {"--mode swap --tensor_size 4M --loops 2", "both together"},
        {"--mode soak --op read --runtime 0.6", "GB/s at the end"},
        {"--mode point --op write --checksum xxh3", "GB/s writing"},
        {"--mode point --op read --backend libaio -v", "libaio"},
        {"--mode point --op read --backend threads -q", "threads"},
        {"--mode point --op read --pages 4k --fixed_buffers off --registered_files off --numa off",
         "GB/s reading"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int code = run(with_drive(rows[i].options));
        if (code == 2 && strstr(err_text, "not built in") != NULL) {
            test_note("%s: %s", rows[i].options, err_text);
            continue;
        }
        if (code != 0) {
            test_fail(__FILE__, __LINE__, "%s ended %d: %s", rows[i].options, code, err_text);
        }
        check_contains(out_text, rows[i].says);
        check_plain(out_text);
        check_plain(err_text);
        check_empty(drive());
    }
}

/* Wrong usage ends 2 before anything is written, and the message says what it should have been. */
static void usage(void)
{
    static const struct {
        const char *arguments;
        const char *sentence;
    } cases[] = {
        {"--mode point", "--nvme_dir DIR names it"},
        {"", "the name of a directory is empty"},
        {"--mode sweeep /d", "--mode takes one of sweep|point|verify|swap|soak"},
        {"--op reads /d", "--op takes read, write and rw"},
        {"--block_size 1000 /d", "multiples of 4096"},
        {"--block_size huge /d", "--block_size: "},
        {"--queue_depth 0 /d", "--queue_depth: 0 is not possible; 1 to "},
        {"--queue_depth x /d", "\"x\" is not a whole number"},
        {"--threads 99 /d", "1 to 16 is"},
        {"--tolerance 200% /d", "--tolerance takes a share such as 10%"},
        {"--numa mars /d", "--numa takes auto, off or the number of a node"},
        {"--params many /d", "such as 7B"},
        {"--runtime fast /d", "--runtime takes a number"},
        {"--checksum xxh3 --block_size 128K /d", "multiples of 1M"},
        {"--checksum md5 /d", "auto|none|xxh3"},
        {"--tensor_size 1K --mode swap /d", "--tensor_size takes 1 MiB and more"},
        {"--mode verify --emit-config c.json /d", "needs a sweep or points"},
        {"--no_read --no_write --op read /d", "no operation is left"},
        {"--use_gds /d", "GPU memory and GDS are not measured"},
        {"--queuedepth 4 /d", "did you mean --queue_depth?"},
        {"--json /nowhere/x.json /tmp", "/nowhere/x.json cannot be written"},
        {"--baseline /nowhere/b.json /tmp", "/nowhere/b.json"},
        {"/nowhere/at/all", "/nowhere/at/all"},
        {"/tmp /tmp", "named twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int code = run(cases[i].arguments);
        if (code != 2) {
            test_fail(__FILE__, __LINE__, "%s ended %d: %s", cases[i].arguments, code, err_text);
        }
        check_contains(err_text, cases[i].sentence);
        check_string(out_text, "");
    }
}

/* What is no directory is refused and stays as it was: a file, a device, a symbolic link. */
static void no_directory(void)
{
    const char *file = test_file("precious", "precious", 8);
    char arguments[600];
    snprintf(arguments, sizeof arguments, SMALL "%s", file);
    check_int(run(arguments), ==, 2);
    check_contains(err_text, "precious");
    char *text = NULL;
    size_t bytes = 0;
    check_int(core_file_read(file, 64, &text, &bytes), ==, 0);
    check_string(text, "precious");
    free(text);
    struct stat info;
    const char *device = stat("/dev/vda", &info) == 0 ? "/dev/vda" : "/dev/null";
    snprintf(arguments, sizeof arguments, SMALL "--yes-destroy %s", device);
    check_int(run(arguments), ==, 2);
    check_contains(err_text, device);
    const char *link = path_in("link");
    check_int(symlink(drive(), link), ==, 0);
    snprintf(arguments, sizeof arguments, SMALL "%s", link);
    check_int(run(arguments), ==, 2);
    check_contains(err_text, "symbolic link");
}

static void become_nobody(void)
{
    if (test_child_drop_root() != 0) {
        _exit(126);
    }
}

/* A directory that we may not write to ends 2 with its name. */
static void not_writable(void)
{
    if (geteuid() != 0) {
        test_skip("needs root, to become somebody else");
    }
    check_int(chmod(test_directory(), 0755), ==, 0);
    check_int(chmod(drive(), 0555), ==, 0);
    int code = run_prepared(with_drive("--mode point"), become_nobody);
    check_int(chmod(drive(), 0700), ==, 0);
    if (code == 126 || code == 127) {
        test_skip("the build folder is not open to others");
    }
    check_int(code, ==, 2);
    check_contains(err_text, drive());
}

/* tmpfs is measured through the page cache with a warning; one that is too small ends 1 and says how
 * much there is. */
static void memory_file_system(void)
{
    char arguments[700];
    char folder[512];
    snprintf(folder, sizeof folder, "%s", path_in("tmpfs"));
    check_int(mkdir(folder, 0700), ==, 0);
    if (mount("none", folder, "tmpfs", 0, "size=160m") != 0) {
        test_skip("tmpfs cannot be mounted: %s", strerror(errno));
    }
    snprintf(arguments, sizeof arguments, SMALL "--mode point --op read %s", folder);
    int code = run(arguments);
    bool warned = strstr(err_text, "page cache") != NULL;
    bool said = strstr(out_text, "The limit is the page cache") != NULL;
    snprintf(arguments, sizeof arguments, SMALL "--io_size 512M --mode point %s", folder);
    int full = run(arguments);
    umount(folder);
    check_int(code, ==, 0);
    check_true(warned && said);
    check_int(full, ==, 1);
    check_contains(err_text, "does not fit");
}

/* --json, --csv and --plot in one run; the emitted configuration is one that `tide config` takes
 * without a warning about aio; "-" gives stdout to the file alone. */
static void files(void)
{
    char options[2048];
    char *text = NULL;
    size_t bytes = 0;
    snprintf(options, sizeof options, "--mode point --json %s --csv %s --plot %s --emit-config %s",
             path_in("r.json"), path_in("r.csv"), path_in("r.svg"), path_in("c.json"));
    check_int(run(with_drive(options)), ==, 0);
    struct core_json *doc = NULL;
    check_int(core_json_load(path_in("r.json"), NULL, &doc), ==, 0);
    check_uint(core_json_count(core_json_find(core_json_root(doc), "points")), ==, 3);
    core_json_destroy(doc);
    check_int(core_file_read(path_in("r.csv"), 1 << 20, &text, &bytes), ==, 0);
    check_contains(text, "dir,op,backend");
    free(text);
    check_int(core_file_read(path_in("r.svg"), 1 << 20, &text, &bytes), ==, 0);
    check_contains(text, "</svg>");
    free(text);
    snprintf(options, sizeof options, "config --json %s", path_in("c.json"));
    check_int(finish(start("tide", options, NULL)), ==, 0);
    static const char *const keys[] = {"block_size", "queue_depth", "intra_op_parallelism",
                                       "single_submit", "overlap_events"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        char key[64];
        snprintf(key, sizeof key, "\"aio.%s\"", keys[i]);
        check_contains(out_text, key);
    }
    check_true(strstr(out_text, "\"refused\": 0") != NULL);
    check_int(run(with_drive("--mode point --op read --json -")), ==, 0);
    check_int(core_json_parse(out_text, strlen(out_text), "stdout", NULL, &doc), ==, 0);
    core_json_destroy(doc);
    check_contains(err_text, "Recommended:");
}

/* Slower than the baseline ends 3 and names the points; a baseline that is met ends 0; one of other
 * settings ends 2. */
static void baseline(void)
{
    static const char kept[] = "{\"schema_version\": 1, \"points\": [{\"dir\": \"%s\", \"params\": "
                               "{\"op\": \"read\", \"block_size\": 1048576, \"queue_depth\": %d, "
                               "\"threads\": 1}, \"median\": %s}]}";
    static const struct {
        int depth;
        const char *median;
        int code;
        const char *says;
    } rows[] = {{4, "1e15", 3, "slower: "},
                {4, "1.0", 0, "Nothing is more than 10 % slower"},
                {5, "1.0", 2, "no point in common"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[1024];
        char options[700];
        snprintf(text, sizeof text, kept, drive(), rows[i].depth, rows[i].median);
        snprintf(options, sizeof options, "--mode point --op read --tolerance 10%% --baseline %s",
                 test_file("baseline.json", text, strlen(text)));
        check_int(run(with_drive(options)), ==, rows[i].code);
        check_contains(rows[i].code == 2 ? err_text : out_text, rows[i].says);
    }
}

static void nap(long milliseconds)
{
    nanosleep(
        &(struct timespec){.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000},
        NULL);
}

/* The nameless scratch file of a running process, or -1. */
static int scratch_of(pid_t child)
{
    for (int fd = 3; fd < 64; fd++) {
        char path[64];
        char to[600];
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)child, fd);
        ssize_t length = readlink(path, to, sizeof to - 1);
        to[length > 0 ? length : 0] = '\0';
        if (strstr(to, "/drive/") != NULL) {
            struct stat info;
            int scratch = open(path, O_WRONLY | O_CLOEXEC);
            if (scratch >= 0 && fstat(scratch, &info) == 0 && info.st_size >= 64 << 20) {
                return scratch;
            }
            close(scratch); /* the file that the look at the file system is made with */
        }
    }
    return -1;
}

/* Waits until the process has its scratch file: from then on it listens to signals. */
static int wait_scratch(pid_t child)
{
    int fd = -1;
    for (int i = 0; i < 3000 && fd < 0; i++) {
        fd = scratch_of(child);
        nap(fd < 0 ? 5 : 0);
    }
    check_true(fd >= 0);
    return fd;
}

/* Somebody else writes into the scratch file all the while: verify sees it and ends 4. */
static void wrong_bytes(void)
{
    static char garbage[4096];
    pid_t child = start("ds_nvme_bench", with_drive("--mode verify --loops 40"), NULL);
    int fd = wait_scratch(child);
    memset(garbage, 'x', sizeof garbage);
    for (int i = 0; i < 20000; i++) {
        siginfo_t info = {.si_pid = 0};
        if (waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
            info.si_pid != 0) {
            break;
        }
        if (pwrite(fd, garbage, sizeof garbage, (i % 64) * 1048576L) < 0) {
            break;
        }
        nap(2);
    }
    int code = finish(child);
    close(fd);
    check_int(code, ==, 4);
    check_contains(out_text, "WRONG");
}

/* Ctrl-C and SIGTERM at any moment end 130 with a word, and nothing stays behind. */
static void interrupted(void)
{
    static const char swap[] = "--mode swap --tensor_size 4M --loops 60";
    static const char *const options[] = {"--mode point --runtime 60", "--mode sweep --runtime 60",
                                          "--mode verify --loops 60", swap,
                                          "--mode soak --runtime 60 --io_size 128M"};
    for (int i = 0; i < 5; i++) {
        pid_t child = start("ds_nvme_bench", with_drive(options[i]), NULL);
        close(wait_scratch(child));
        nap(60 * i);
        check_int(kill(child, i % 2 == 0 ? SIGINT : SIGTERM), ==, 0);
        int code = finish(child);
        if (code != 130) {
            test_fail(__FILE__, __LINE__, "%s ended %d: %s", options[i], code, err_text);
        }
        check_contains(err_text, "interrupted");
        check_empty(drive());
    }
    pid_t child = start("ds_nvme_bench", with_drive("--mode point --runtime 60"), NULL);
    close(wait_scratch(child));
    check_int(kill(child, SIGKILL), ==, 0);
    check_int(waitpid(child, NULL, 0), ==, child);
    check_empty(drive());
}

static void forbid_uring(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        _exit(126);
    }
}

/* Where containers forbid io_uring another back end measures, and asking for io_uring is answered
 * with the reason. */
static void uring_forbidden(void)
{
    int code = run_prepared(with_drive("--mode point --op read"), forbid_uring);
    if (code == 126) {
        test_skip("seccomp filters are not allowed here");
    }
    check_int(code, ==, 0);
    check_true(strstr(out_text, "direct, libaio") != NULL ||
               strstr(out_text, "direct, threads") != NULL);
    check_int(run_prepared(with_drive("--mode point --ioengine io_uring"), forbid_uring), ==, 2);
    check_contains(err_text, TIDE_TEST_URING ? "was asked for, but" : "is not built in");
}

/* What other tools take and we need not is accepted, and said to change nothing. */
static void other_tools(void)
{
    check_int(run(with_drive("--mode point --read --single_submit --sequential_requests --engine "
                             "aio_handle --flush_page_cache")),
              ==, 0);
    check_contains(err_text, "change nothing here");
    free(out_text);
    free(err_text);
    out_text = err_text = NULL;
}

TEST_MAIN({"help", help}, {"modes", modes}, {"usage", usage}, {"no_directory", no_directory},
          {"not_writable", not_writable}, {"memory_file_system", memory_file_system},
          {"files", files}, {"baseline", baseline}, {"wrong_bytes", wrong_bytes},
          {"interrupted", interrupted}, {"uring_forbidden", uring_forbidden},
          {"other_tools", other_tools})
