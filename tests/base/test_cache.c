/* Tests the files of the cache: complete writes, folders, and the removal of old files. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>

#include "core/json/cache.h"
#include "tests/harness/test.h"

static void put_number(struct core_json_write *json, const void *from)
{
    core_json_write_object_begin(json, NULL);
    core_json_write_real(json, "number", *(const double *)from);
    core_json_write_object_end(json);
}

static void make_older(const char *path, long days)
{
    const time_t now = time(NULL);
    const struct utimbuf times = {now, now - days * 86400L};
    check_int(utime(path, &times), ==, 0);
}

static void paths(void)
{
    char path[CORE_CACHE_PATH_BYTES];
    char folder[CORE_CACHE_PATH_BYTES];
    check_true(core_cache_path("/a/b", "rows", 0x12, path));
    check_string(path, "/a/b/rows-0000000000000012.json");
    memset(folder, 'x', sizeof folder - 1);
    folder[sizeof folder - 1] = '\0';
    check_true(!core_cache_path(folder, "rows", 1, path));
    check_string(path, "");
}

/* Missing folders are created for the user alone; a failure returns its errno. */
static void folders(void)
{
    char folder[CORE_CACHE_PATH_BYTES];
    struct stat info;
    snprintf(folder, sizeof folder, "%s/one/two/three", test_directory());
    for (int i = 0; i < 2; i++) {
        check_int(core_cache_make_folder(folder), ==, 0);
        check_int(stat(folder, &info), ==, 0);
        check_int(info.st_mode & 0777, ==, 0700);
    }
    check_int(core_cache_make_folder("/"), ==, 0);
    check_int(core_cache_make_folder(""), ==, -ENOENT);
    check_int(core_cache_make_folder("/proc/none/here"), ==, -ENOENT);
    snprintf(folder, sizeof folder, "%s/under/it", test_file("file", "", 0));
    check_int(core_cache_make_folder(folder), ==, -ENOTDIR);
    memset(folder, 'x', sizeof folder - 1);
    folder[sizeof folder - 1] = '\0';
    check_int(core_cache_make_folder(folder), ==, -ENAMETOOLONG);
}

/* A failed write leaves no draft and keeps an existing file. */
static void whole_or_not(void)
{
    char folder[512];
    char path[CORE_CACHE_PATH_BYTES];
    char draft[CORE_CACHE_PATH_BYTES + 16];
    double number = 1;
    snprintf(folder, sizeof folder, "%s/new/tide", test_directory());
    check_true(core_cache_path(folder, "kind", 1, path));
    snprintf(draft, sizeof draft, "%s.%d", path, (int)getpid());
    check_true(!core_cache_counts(path));
    check_int(core_cache_write(path, put_number, &number), ==, 0);
    check_true(core_cache_counts(path));
    check_int(access(draft, F_OK), ==, -1);
    number = (double)NAN;
    check_int(core_cache_write(path, put_number, &number), ==, -EDOM);
    check_int(access(draft, F_OK), ==, -1);
    check_true(core_cache_counts(path));
    number = 2;
    check_int(mkdir(draft, 0700), ==, 0);
    check_int(core_cache_write(path, put_number, &number), ==, -EEXIST);
    check_int(rmdir(draft), ==, 0);
    check_int(unlink(path), ==, 0);
    check_int(mkdir(path, 0700), ==, 0); /* not a file */
    check_true(!core_cache_counts(path));
    check_int(core_cache_write(path, put_number, &number), ==, -EISDIR);
    check_int(access(draft, F_OK), ==, -1);
    check_true(core_cache_path("/proc/none", "kind", 1, path));
    check_int(core_cache_write(path, put_number, &number), ==, -ENOENT);
}

/* A write removes the files of its kind that have expired or are dated in the future, and no other
 * files. */
static void old_files_go(void)
{
    static const struct {
        const char *name;
        long days;
        bool goes;
    } files[] = {
        {"rows-00000000000000aa.json", CORE_CACHE_DAYS + 1, true},
        {"rows-00000000000000ab.json", CORE_CACHE_DAYS - 1, false},
        {"rows-00000000000000ac.json", -1, true}, /* in the future */
        {"rows-00000000000000ad.json.4711", CORE_CACHE_DAYS + 1, true},
        {"rows-00000000000000ae.json.4711", 0, false},
        {"rows-00000000000000af.json.bak", CORE_CACHE_DAYS + 1, false},
        {"rows-00000000000000a.json", CORE_CACHE_DAYS + 1, false},
        {"rows-00000000000000aaa.json", CORE_CACHE_DAYS + 1, false},
        {"drive-00000000000000aa.json", CORE_CACHE_DAYS + 1, false},
        {"products-cuda", CORE_CACHE_DAYS + 1, false},
    };
    enum { FILES = sizeof files / sizeof files[0] };
    char path[CORE_CACHE_PATH_BYTES];
    double number = 1;
    for (size_t i = 0; i < FILES; i++) {
        make_older(test_file(files[i].name, "{}", 2), files[i].days);
    }
    check_true(core_cache_path(test_directory(), "rows", 0xaa, path));
    check_true(!core_cache_counts(path));
    check_true(core_cache_path(test_directory(), "rows", 0xab, path));
    check_true(core_cache_counts(path));
    check_true(core_cache_path(test_directory(), "rows", 0xac, path));
    check_true(!core_cache_counts(path));
    check_true(core_cache_path(test_directory(), "rows", 1, path));
    check_int(core_cache_write(path, put_number, &number), ==, 0);
    check_true(core_cache_counts(path));
    for (size_t i = 0; i < FILES; i++) {
        snprintf(path, sizeof path, "%s/%s", test_directory(), files[i].name);
        if ((access(path, F_OK) != 0) != files[i].goes) {
            test_fail(__FILE__, __LINE__, "%s %s", files[i].name, files[i].goes ? "stays" : "goes");
        }
    }
}

TEST_MAIN({"paths", paths}, {"folders", folders}, {"whole_or_not", whole_or_not},
          {"old_files_go", old_files_go})
