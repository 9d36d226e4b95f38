/* block_device.c: follows a device number through partitions and mappings to a drive. */
#include "core/base/block_device.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/sysfile.h"

enum { MAPPINGS_MAX = 8, PATH_BYTES = 4096 };

static int read_name(const char *root, unsigned major, unsigned minor, char *name)
{
    char text[2048];
    if (core_sysfile_text(text, sizeof text, root, "/sys/dev/block/%u:%u/uevent", major, minor) <=
        0) {
        return -ENOENT;
    }
    const char *line = strstr(text, "DEVNAME=");
    return line != NULL && sscanf(line, "DEVNAME=%63s", name) == 1 ? 0 : -ENOENT;
}

/* Returns whether `look` returned true for an entry of the folder; later entries are skipped. */
static bool any_in(const char *root, const char *folder,
                   bool (*look)(const char *root, const char *entry, void *user), void *user)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s%s", root, folder);
    DIR *names = opendir(path);
    bool found = false;
    for (struct dirent *entry; names != NULL && !found && (entry = readdir(names)) != NULL;) {
        found = entry->d_name[0] != '.' && look(root, entry->d_name, user);
    }
    if (names != NULL) {
        closedir(names);
    }
    return found;
}

static bool holds_partition(const char *root, const char *entry, void *user)
{
    char text[32];
    char *name = user;
    if (core_sysfile_text(text, sizeof text, root, "/sys/block/%s/%s/partition", entry, name) <=
        0) {
        return false;
    }
    snprintf(name, CORE_BLOCK_NAME_BYTES, "%.63s", entry);
    return true;
}

/* Replaces a partition by its drive; leaves a drive unchanged. */
static void to_whole(const char *root, char *name)
{
    char text[32];
    if (core_sysfile_text(text, sizeof text, root, "/sys/class/block/%s/partition", name) > 0) {
        any_in(root, "/sys/block", holds_partition, name);
    }
}

struct below {
    char name[CORE_BLOCK_NAME_BYTES];
    unsigned count;
};

static bool count_below(const char *root, const char *entry, void *user)
{
    struct below *below = user;
    (void)root;
    /* the order in which a folder is read varies */
    if (below->count++ == 0 || strcmp(entry, below->name) < 0) {
        snprintf(below->name, sizeof below->name, "%.63s", entry);
    }
    return false;
}

static void to_lowest(const char *root, struct core_block_device *block)
{
    block->drives = 1;
    for (int depth = 0; depth < MAPPINGS_MAX; depth++) {
        char folder[128];
        struct below below = {.count = 0};
        snprintf(folder, sizeof folder, "/sys/block/%s/slaves", block->name);
        any_in(root, folder, count_below, &below);
        if (below.count == 0) {
            return;
        }
        block->drives = below.count > block->drives ? below.count : block->drives;
        memcpy(block->name, below.name, sizeof block->name);
        to_whole(root, block->name);
    }
}

static void read_text(const char *root, const char *name, const char *file, char *text)
{
    if (core_sysfile_text(text, CORE_BLOCK_TEXT_BYTES, root, "/sys/block/%s/%s", name, file) < 0) {
        text[0] = '\0';
    }
    size_t length = strlen(text);
    while (length > 0 && text[length - 1] == ' ') {
        text[--length] = '\0';
    }
}

static int64_t read_number(const char *root, const char *name, const char *file, int64_t absent)
{
    int64_t value = absent;
    return core_sysfile_number(&value, root, "/sys/block/%s/%s", name, file) == 0 ? value : absent;
}

int core_block_device_find(const char *root, unsigned major, unsigned minor,
                           struct core_block_device *out)
{
    struct core_block_device block = {.node = -1};
    char path[160];
    if (major == 0 || read_name(root, major, minor, block.name) != 0) {
        return -ENOENT;
    }
    to_whole(root, block.name);
    to_lowest(root, &block);
    block.virtual_drive = strncmp(block.name, "vd", 2) == 0 || strncmp(block.name, "xvd", 3) == 0;
    read_text(root, block.name, "device/model", block.model);
    read_text(root, block.name, "device/firmware_rev", block.firmware);
    /* Virtual drives usually claim to be spinning disks. */
    block.spins = !block.virtual_drive && read_number(root, block.name, "queue/rotational", 0) != 0;
    block.node = (int)read_number(root, block.name, "device/numa_node", -1);
    block.max_sectors_kb = read_number(root, block.name, "queue/max_sectors_kb", 0);
    block.max_hw_sectors_kb = read_number(root, block.name, "queue/max_hw_sectors_kb", 0);
    snprintf(path, sizeof path, "/sys/block/%s/queue/scheduler", block.name);
    if (core_sysfile_choice(block.scheduler, sizeof block.scheduler, root, path) != 0) {
        block.scheduler[0] = '\0';
    }
    *out = block;
    return 0;
}
