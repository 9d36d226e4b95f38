/* machines.c: finds the file of --machine, relative to the command, so that the prefix can be
 * moved. */
#include "tools/tide/machines.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/json/json.h"

static const char suffix[] = ".json";

/* Relative to the folder of the command: in a build, and installed. */
static const char *const folders[] = {"machines", TIDE_MACHINES};
enum { FOLDERS = sizeof folders / sizeof folders[0] };

/* Writes "" if the folder is unknown. */
static void find_own_folder(char out[PATH_MAX])
{
    const ssize_t bytes = readlink("/proc/self/exe", out, PATH_MAX - 1);
    out[bytes > 0 ? bytes : 0] = '\0';
    char *slash = strrchr(out, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
}

static bool is_machine(const char *file)
{
    const size_t bytes = strlen(file);
    return bytes > sizeof suffix - 1 && strcmp(file + bytes - (sizeof suffix - 1), suffix) == 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_listed(const struct dirent *entry)
{
    return is_machine(entry->d_name);
}

static void list_folder(const char *folder, char *text, size_t room)
{
    struct dirent **entries = NULL;
    const int count = scandir(folder, &entries, is_listed, by_name);
    for (int i = 0; i < count; i++) {
        const size_t used = strlen(text);
        const int bytes = (int)(strlen(entries[i]->d_name) - (sizeof suffix - 1));
        snprintf(text + used, room - used, "%s%.*s", used > 0 ? ", " : "", bytes,
                 entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
}

static bool join(const char *own, const char *folder, const char *name, char path[PATH_MAX])
{
    const int bytes = snprintf(path, PATH_MAX, "%s/%s%s%s%s", folder[0] == '/' ? "" : own, folder,
                               name != NULL ? "/" : "", name != NULL ? name : "",
                               name != NULL ? suffix : "");
    return bytes < PATH_MAX;
}

static int find_path(const char *name, char path[PATH_MAX])
{
    char own[PATH_MAX];
    char names[1024] = "";
    if (strchr(name, '/') != NULL || is_machine(name)) {
        return snprintf(path, PATH_MAX, "%s", name) < PATH_MAX
                   ? 0
                   : core_err_set(-ENAMETOOLONG, "--machine: the path is too long");
    }
    find_own_folder(own);
    for (int i = 0; i < FOLDERS; i++) {
        if (join(own, folders[i], name, path) && access(path, F_OK) == 0) {
            return 0;
        }
    }
    for (int i = 0; i < FOLDERS && names[0] == '\0'; i++) {
        if (join(own, folders[i], NULL, path)) {
            list_folder(path, names, sizeof names);
        }
    }
    return core_err_set(-ENOENT,
                        "--machine %s: unknown; expected a file that ends in .json, or one of: %s",
                        name, names[0] != '\0' ? names : "(none is installed)");
}

static int read_devices(const char *path, int64_t *out)
{
    struct core_json *doc = NULL;
    const struct core_json_value *devices = NULL;
    int rc = core_json_load(path, NULL, &doc);
    if (rc == 0) {
        rc = core_json_get(doc, core_json_root(doc), "devices", CORE_JSON_OBJECT, &devices);
    }
    if (rc == 0) {
        rc = core_json_get_integer(doc, devices, "value", out);
    }
    if (rc == 0 && *out < 1) {
        rc = core_json_refuse(doc, devices, "value", 0, -EINVAL,
                              "%lld; expected an integer above 0", (long long)*out);
    }
    core_json_destroy(doc);
    return rc == -ENOENT && access(path, F_OK) == 0 ? core_err_adopt(-EINVAL, core_err_message())
                                                    : rc;
}

int cli_machine_find(const char *name, struct cli_machine *out)
{
    const int rc = find_path(name, out->path);
    return rc == 0 ? read_devices(out->path, &out->devices) : rc;
}
