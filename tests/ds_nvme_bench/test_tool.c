/* test_tool.c: tests the built program. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/json/json.h"
#include "tests/ds_nvme_bench/tool.h"
#include "tests/harness/mount.h"
#include "tests/harness/test.h"

static void check_plain(const char *text)
{
    for (const char *at = text; *at != '\0'; at++) {
        if (*at == '\033' || *at == '\r') {
            test_fail(__FILE__, __LINE__, "a control character in \"%s\"", text);
        }
    }
}

/* --help has an example, but no synonyms or control characters. */
static void help(void)
{
    check_int(tool_run("--help"), ==, 0);
    check_contains(tool_out, "Example:\n  ds_nvme_bench --nvme_dir ");
    check_contains(tool_out, "--emit-config FILE");
    check_true(strstr(tool_out, "--iodepth") == NULL);
    check_string(tool_err, "");
    check_plain(tool_out);
    check_int(tool_run("--version"), ==, 0);
    check_contains(tool_out, "ds_nvme_bench 0.");
    check_contains(tool_out, "backends:");
}

/* A mode prints results to stdout, and leaves the directory empty. */
static void modes(void)
{
    static const struct {
        const char *options;
        const char *says;
    } rows[] = {
        {"--mode point --op read,rw --params 350M --tbw 600", "A model of 0.35B parameters"},
        {"--mode sweep --runtime 0.5", "Recommended: block "},
        {"--mode sweep --full --block_size 256K,1M --runtime 0.05", "%peak"},
        {"--mode verify --loops 2", "were read back as written"},
        {"--mode swap --tensor_size 4M --loops 2", "together"},
        {"--mode soak --op read --runtime 0.3", "GB/s at the end"},
        {"--mode point --op write --checksum xxh3", "GB/s writing"},
        {"--mode point --op read --backend libaio -v", "libaio"},
        {"--mode point --op read --backend threads -q", "threads"},
        {"--mode point --op read --pages 4k --fixed_buffers off --registered_files off --numa off",
         "GB/s reading"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int code = tool_run(tool_with_drive(rows[i].options));
        if (code == 2 && strstr(tool_err, "not built in") != NULL) {
            test_note("%s: %s", rows[i].options, tool_err);
            continue;
        }
        if (code != 0) {
            test_fail(__FILE__, __LINE__, "%s ended %d: %s", rows[i].options, code, tool_err);
        }
        check_contains(tool_out, rows[i].says);
        check_plain(tool_out);
        check_plain(tool_err);
        tool_check_empty(tool_drive());
    }
}

/* Wrong usage exits with 2 before anything is written. */
static void usage(void)
{
    static const struct {
        const char *arguments;
        const char *message;
    } cases[] = {
        {"--mode point", "--nvme_dir DIR is missing"},
        {"", "an argument is empty"},
        {"--mode sweeep /d", "--mode takes one of sweep|point|verify|swap|soak"},
        {"--op reads /d", "--op takes read, write and rw"},
        {"--block_size 1000 /d", "multiples of 4096"},
        {"--block_size huge /d", "--block_size: "},
        {"--queue_depth 0 /d", "--queue_depth: 0 is not allowed; use 1 to "},
        {"--queue_depth x /d", "\"x\" is not a whole number"},
        {"--threads 99 /d", "use 1 to 16"},
        {"--tolerance 200% /d", "--tolerance takes a share such as 10%"},
        {"--numa mars /d", "--numa takes auto, off or the number of a node"},
        {"--params many /d", "such as 7B"},
        {"--runtime fast /d", "--runtime takes a number"},
        {"--checksum xxh3 --block_size 128K /d", "multiple of 1M"},
        {"--checksum md5 /d", "auto|none|xxh3"},
        {"--tensor_size 1K --mode swap /d", "--tensor_size must be at least 1 MiB"},
        {"--mode verify --emit-config c.json /d", "needs a sweep or points"},
        {"--op , /d", "--op is empty"},
        {"--use_gds /d", "unknown option --use_gds: GPU memory and GDS are not measured"},
        {"--bs 1M /d", "unknown option --bs: use --block_size LIST"},
        {"--single_submit /d", "unknown option --single_submit"},
        {"--op readwrite /d", "--op takes read, write and rw, not \"readwrite\""},
        {"--queuedepth 4 /d", "did you mean --queue_depth?"},
        {"--json /nowhere/x.json /tmp", "/nowhere/x.json cannot be written"},
        {"--baseline /nowhere/b.json /tmp", "/nowhere/b.json"},
        {"--json - --csv - /tmp", "two of --json, --csv, --plot and --emit-config name -"},
        {"--backend psync /d", "--backend takes auto, uring, libaio or threads, not \"psync\""},
        {"--backend mem /d", "not \"mem\""},
        {"--mode verify --csv v.csv /d", "measures no points for --csv"},
        {"--mode swap --baseline b.json /d", "measures no points for --csv, --plot or --baseline"},
        {"--mode swap --block_size 1M,4M /d", "takes one --block_size"},
        {"/nowhere/at/all", "/nowhere/at/all"},
        {"/tmp /tmp", "named twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int code = tool_run(cases[i].arguments);
        if (code != 2) {
            test_fail(__FILE__, __LINE__, "%s ended %d: %s", cases[i].arguments, code, tool_err);
        }
        check_contains(tool_err, cases[i].message);
        check_string(tool_out, "");
    }
}

/* A target that is not a directory is refused and unchanged. */
static void no_directory(void)
{
    const char *file = test_file("precious", "precious", 8);
    char arguments[600];
    snprintf(arguments, sizeof arguments, TOOL_SMALL "%s", file);
    check_int(tool_run(arguments), ==, 2);
    check_contains(tool_err, "precious");
    char *text = NULL;
    size_t bytes = 0;
    check_int(core_file_read(file, 64, &text, &bytes), ==, 0);
    check_string(text, "precious");
    free(text);
    struct stat info;
    const char *device = stat("/dev/vda", &info) == 0 ? "/dev/vda" : "/dev/null";
    snprintf(arguments, sizeof arguments, TOOL_SMALL "%s", device);
    check_int(tool_run(arguments), ==, 2);
    check_contains(tool_err, device);
    const char *link = tool_path("link");
    check_int(symlink(tool_drive(), link), ==, 0);
    snprintf(arguments, sizeof arguments, TOOL_SMALL "%s", link);
    check_int(tool_run(arguments), ==, 2);
    check_contains(tool_err, "symbolic link");
}

/* tmpfs is measured with a warning, and must be large enough. */
static void memory_file_system(void)
{
    char arguments[700];
    const char *folder = test_mount_memory("tmpfs", "size=160m");
    if (folder == NULL) {
        test_skip("tmpfs cannot be mounted: %s", strerror(errno));
    }
    snprintf(arguments, sizeof arguments, TOOL_SMALL "--mode point --op read %s", folder);
    int code = tool_run(arguments);
    bool warned = strstr(tool_err, "page cache") != NULL;
    bool said = strstr(tool_out, "The limit is the page cache") != NULL;
    snprintf(arguments, sizeof arguments, TOOL_SMALL "--io_size 512M --mode point %s", folder);
    int full = tool_run(arguments);
    test_mount_end(folder);
    check_int(code, ==, 0);
    check_true(warned && said);
    check_int(full, ==, 1);
    check_contains(tool_err, "does not fit");
}

/* The outputs work in one run, and `tide config` accepts the emitted file. With `--json -`, stdout
 * has only the report. */
static void files(void)
{
    char options[2048];
    char *text = NULL;
    size_t bytes = 0;
    snprintf(options, sizeof options, "--mode point --json %s --csv %s --plot %s --emit-config %s",
             tool_path("r.json"), tool_path("r.csv"), tool_path("r.svg"), tool_path("c.json"));
    check_int(tool_run(tool_with_drive(options)), ==, 0);
    struct core_json *doc = NULL;
    check_int(core_json_load(tool_path("r.json"), NULL, &doc), ==, 0);
    check_uint(core_json_count(core_json_find(core_json_root(doc), "points")), ==, 3);
    core_json_destroy(doc);
    check_int(core_file_read(tool_path("r.csv"), 1 << 20, &text, &bytes), ==, 0);
    check_contains(text, "dir,op,backend");
    free(text);
    check_int(core_file_read(tool_path("r.svg"), 1 << 20, &text, &bytes), ==, 0);
    check_contains(text, "</svg>");
    free(text);
    snprintf(options, sizeof options, "config --json --batch 1 %s", tool_path("c.json"));
    check_int(tool_finish(tool_start("tide", options, NULL)), ==, 0);
    static const char *const keys[] = {"block_size", "queue_depth", "intra_op_parallelism",
                                       "single_submit", "overlap_events"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        char key[64];
        snprintf(key, sizeof key, "\"aio.%s\"", keys[i]);
        check_contains(tool_out, key);
    }
    check_true(strstr(tool_out, "\"refused\": 0") != NULL);
    check_int(tool_run(tool_with_drive("--mode point --op read --json -")), ==, 0);
    check_int(core_json_parse(tool_out, strlen(tool_out), "stdout", NULL, &doc), ==, 0);
    core_json_destroy(doc);
    check_contains(tool_err, "GB/s reading");
}

/* A run that is slower than the baseline exits with 3; a baseline with other settings is wrong
 * usage. */
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
        snprintf(text, sizeof text, kept, tool_drive(), rows[i].depth, rows[i].median);
        snprintf(options, sizeof options, "--mode point --op read --tolerance 10%% --baseline %s",
                 test_file("baseline.json", text, strlen(text)));
        check_int(tool_run(tool_with_drive(options)), ==, rows[i].code);
        check_contains(rows[i].code == 2 ? tool_err : tool_out, rows[i].says);
    }
    /* A report is compared with the baseline that it replaces. */
    char text[1024];
    char options[1400];
    snprintf(text, sizeof text, kept, tool_drive(), 4, "1e15");
    const char *path = test_file("baseline.json", text, strlen(text));
    snprintf(options, sizeof options, "--mode point --op read --baseline %s --json %s", path, path);
    check_int(tool_run(tool_with_drive(options)), ==, 3);
    const int again = tool_run(tool_with_drive(options));
    check_true(again == 0 || again == 3);
    check_true(strstr(tool_out, "was 1000000.00") == NULL);
}

/* Settings that do not fit are reported; the user's configuration is kept. */
static void nothing_in_silence(void)
{
    static const char mine[] = "{\"optimizer\": {}}";
    char options[700];
    char *text = NULL;
    size_t bytes = 0;
    check_int(tool_run(tool_with_drive("--mode point --block_size 8M")), ==, 0);
    check_contains(tool_err, "1 of 3 requested measurements are skipped");
    check_int(tool_run(tool_with_drive("--mode verify --pages 4k")), ==, 0);
    check_contains(tool_err, "--mode verify uses one I/O thread");
    check_int(tool_run(tool_with_drive("--mode sweep --op read --runtime 0.3")), ==, 0);
    check_contains(tool_err, "--loops and --ramp_time are for --full");
    const char *path = test_file("ds_config.json", mine, sizeof mine - 1);
    snprintf(options, sizeof options, "--mode point --op read --emit-config %s", path);
    check_int(tool_run(tool_with_drive(options)), ==, 2);
    check_contains(tool_err, "is not overwritten");
    check_int(core_file_read(path, 64, &text, &bytes), ==, 0);
    check_string(text, mine);
    free(text);
}

TEST_MAIN({"help", help}, {"modes", modes}, {"usage", usage}, {"no_directory", no_directory},
          {"memory_file_system", memory_file_system}, {"files", files}, {"baseline", baseline},
          {"nothing_in_silence", nothing_in_silence})
