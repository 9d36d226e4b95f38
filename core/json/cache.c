/* cache.c: writes a file under a temporary name, renames it, and removes old ones. */
#include "core/json/cache.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    DAY_SECONDS = 86400,
    AHEAD_SECONDS = 60, /* clocks of file servers may be ahead */
    HASH_DIGITS = 16
};
static const char suffix[] = ".json";

bool core_cache_path(const char *folder, const char *kind, uint64_t hash,
                     char path[CORE_CACHE_PATH_BYTES])
{
    const int length = snprintf(path, CORE_CACHE_PATH_BYTES, "%s/%s-%016" PRIx64 "%s", folder, kind,
                                hash, suffix);
    const bool fits = length > 0 && length < CORE_CACHE_PATH_BYTES;
    path[0] = fits ? path[0] : '\0';
    return fits;
}

static bool is_of_now(const struct stat *info)
{
    const time_t age = time(NULL) - info->st_mtime;
    return age >= -AHEAD_SECONDS && age <= (time_t)CORE_CACHE_DAYS * DAY_SECONDS;
}

bool core_cache_counts(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && is_of_now(&info);
}

/* Makes one folder, which may exist already. */
static int make_one(const char *folder)
{
    return mkdir(folder, 0700) == 0 || errno == EEXIST ? 0 : -errno;
}

int core_cache_make_folder(const char *folder)
{
    char path[CORE_CACHE_PATH_BYTES];
    const size_t length = strlen(folder);
    if (length >= sizeof path) {
        return -ENAMETOOLONG;
    }
    memcpy(path, folder, length + 1);
    int rc = make_one(path);
    while (rc == -ENOENT) { /* goes up to the first folder that exists or can be made */
        char *slash = strrchr(path, '/');
        if (slash == NULL || slash == path) {
            return rc;
        }
        *slash = '\0';
        rc = make_one(path);
    }
    for (size_t at = strlen(path); rc == 0 && at < length; at = strlen(path)) {
        path[at] = '/'; /* goes down again and makes the missing folders */
        rc = make_one(path);
    }
    return rc;
}

/* Returns whether a name fits `begin`, a hash and the suffix; a draft also has "." and a number. */
static bool is_of_kind(const char *name, const char *begin, size_t length)
{
    if (strncmp(name, begin, length) != 0) {
        return false;
    }
    name += length;
    for (int i = 0; i < HASH_DIGITS; i++, name++) {
        if (!isxdigit((unsigned char)*name)) {
            return false;
        }
    }
    if (strncmp(name, suffix, strlen(suffix)) != 0) {
        return false;
    }
    name += strlen(suffix);
    return *name == '\0' || (*name == '.' && strspn(name + 1, "0123456789") == strlen(name + 1));
}

/* Removes files of the kind of `name` that are too old or from the future. */
static void remove_old(const char *folder, const char *name)
{
    DIR *dir = opendir(folder);
    const size_t length = strlen(name) - HASH_DIGITS - strlen(suffix);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        struct stat info;
        if (is_of_kind(entry->d_name, name, length) &&
            fstatat(dirfd(dir), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(info.st_mode) && !is_of_now(&info)) {
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

static int write_draft(const char *draft, core_cache_put *put, const void *from)
{
    struct core_json_write json;
    FILE *file = fopen(draft, "wxe");
    if (file == NULL) {
        return -errno;
    }
    core_json_write_init_file(&json, file);
    put(&json, from);
    int rc = core_json_write_end(&json);
    core_json_write_fini(&json);
    rc = fclose(file) != 0 && rc == 0 ? -errno : rc;
    if (rc != 0) {
        (void)unlink(draft);
    }
    return rc;
}

int core_cache_write(const char *path, core_cache_put *put, const void *from)
{
    char folder[CORE_CACHE_PATH_BYTES];
    char draft[CORE_CACHE_PATH_BYTES + 16];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    snprintf(draft, sizeof draft, "%s.%d", path, (int)getpid());
    int rc = core_cache_make_folder(folder);
    if (rc == 0) {
        rc = write_draft(draft, put, from);
    }
    if (rc == 0 && rename(draft, path) != 0) {
        rc = -errno;
        (void)unlink(draft);
    }
    if (rc == 0) {
        remove_old(folder, slash + 1);
    }
    return rc;
}
