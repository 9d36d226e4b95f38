/* drive.c: how the block device under a store is set up. Reads /sys only; no state. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "core/base/kfile.h"
#include "offload/doctor/doctor.h"

static const char topic[] = "drive";

enum { NAME_BYTES = 64, SECTORS_GOOD_KB = 1024, SECTORS_CURE_KB = 4096 };

/* "…/block/nvme0n1/nvme0n1p2" is a partition: its uevent names it, its parent folder the drive. */
static int read_name(const char *root, unsigned major, unsigned minor, char name[NAME_BYTES])
{
    char text[2048];
    if (core_kfile_text(text, sizeof text, root, "/sys/dev/block/%u:%u/uevent", major, minor) <=
        0) {
        return -1;
    }
    const char *line = strstr(text, "DEVNAME=");
    return line != NULL && sscanf(line, "DEVNAME=%63s", name) == 1 ? 0 : -1;
}

/* The drive of a partition, found by the folder below it; a whole drive is its own. */
static void to_whole(const char *root, char name[NAME_BYTES])
{
    char folder[4096];
    char text[32];
    if (core_kfile_text(text, sizeof text, root, "/sys/class/block/%s/partition", name) <= 0) {
        return;
    }
    snprintf(folder, sizeof folder, "%s/sys/block", root);
    DIR *drives = opendir(folder);
    for (struct dirent *entry; drives != NULL && (entry = readdir(drives)) != NULL;) {
        if (core_kfile_text(text, sizeof text, root, "/sys/block/%s/%s/partition", entry->d_name,
                            name) > 0) {
            snprintf(name, NAME_BYTES, "%.63s", entry->d_name);
            break;
        }
    }
    if (drives != NULL) {
        closedir(drives);
    }
}

/* Goes down through mappings (encryption, volumes, RAID) to their first drive; counts drives. */
static unsigned to_lowest(const char *root, char name[NAME_BYTES])
{
    unsigned drives = 1;
    for (int depth = 0; depth < 8; depth++) {
        char folder[4096];
        char below[NAME_BYTES] = "";
        unsigned count = 0;
        snprintf(folder, sizeof folder, "%s/sys/block/%s/slaves", root, name);
        DIR *slaves = opendir(folder);
        for (struct dirent *entry; slaves != NULL && (entry = readdir(slaves)) != NULL;) {
            if (entry->d_name[0] != '.') {
                count++;
                snprintf(below, sizeof below, "%.63s", entry->d_name);
            }
        }
        if (slaves != NULL) {
            closedir(slaves);
        }
        if (count == 0) {
            break;
        }
        drives = count > drives ? count : drives;
        memcpy(name, below, sizeof below);
        to_whole(root, name);
    }
    return drives;
}

static void say_kind(struct doctor *doctor, const char *name, unsigned drives)
{
    char model[128] = "";
    int64_t spins = 0;
    int64_t node = -1;
    core_kfile_text(model, sizeof model, doctor->root, "/sys/block/%s/device/model", name);
    size_t length = strlen(model);
    while (length > 0 && model[length - 1] == ' ') {
        model[--length] = '\0';
    }
    core_kfile_number(&spins, doctor->root, "/sys/block/%s/queue/rotational", name);
    core_kfile_number(&node, doctor->root, "/sys/block/%s/device/numa_node", name);
    /* Virtual drives say that they spin whatever they are. */
    bool slow = spins != 0 && strncmp(name, "vd", 2) != 0 && strncmp(name, "xvd", 3) != 0;
    char many[64] = "";
    if (drives > 1) {
        snprintf(many, sizeof many, ", the first of %u", drives);
    }
    char near[32] = "";
    if (node >= 0) {
        snprintf(near, sizeof near, ", near node %d", (int)node);
    }
    doctor_say(doctor,
               &(struct doctor_line){.verdict = slow ? TIDE_WARN : TIDE_OK,
                                     .topic = topic,
                                     .subject = name,
                                     .cure = slow ? "choose a --store on an NVMe drive" : NULL},
               "%s%s%s%s",
               model[0] != '\0'              ? model
               : strncmp(name, "vd", 2) == 0 ? "a virtual drive"
                                             : "no model name",
               many, near, slow ? ": a spinning disk" : "");
}

static void say_scheduler(struct doctor *doctor, const char *name)
{
    char path[160];
    char choice[64];
    snprintf(path, sizeof path, "/sys/block/%s/queue/scheduler", name);
    if (core_kfile_choice(choice, sizeof choice, doctor->root, path) != 0) {
        return;
    }
    bool bad = strcmp(choice, "bfq") == 0 ||
               (strncmp(name, "nvme", 4) == 0 && strcmp(choice, "none") != 0);
    char cure[256] = "";
    if (bad) {
        snprintf(cure, sizeof cure, "echo none | sudo tee %s", path);
    }
    doctor_say(
        doctor,
        &(struct doctor_line){
            .verdict = bad ? TIDE_WARN : TIDE_OK, .topic = topic, .subject = name, .cure = cure},
        bad ? "scheduler %s costs processor time and orders what needs no order" : "scheduler %s",
        choice);
}

static void say_request(struct doctor *doctor, const char *name)
{
    int64_t now_kb = 0;
    int64_t most_kb = 0;
    if (core_kfile_number(&now_kb, doctor->root, "/sys/block/%s/queue/max_sectors_kb", name) != 0 ||
        core_kfile_number(&most_kb, doctor->root, "/sys/block/%s/queue/max_hw_sectors_kb", name) !=
            0) {
        return;
    }
    bool small = now_kb < SECTORS_GOOD_KB && now_kb < most_kb;
    char cure[256] = "";
    if (small) {
        snprintf(cure, sizeof cure, "echo %lld | sudo tee /sys/block/%s/queue/max_sectors_kb",
                 (long long)(most_kb < SECTORS_CURE_KB ? most_kb : SECTORS_CURE_KB), name);
    }
    doctor_say(doctor,
               &(struct doctor_line){.verdict = small ? TIDE_WARN : TIDE_OK,
                                     .topic = topic,
                                     .subject = name,
                                     .cure = cure,
                                     .figure = "request_bytes_max",
                                     .value = (double)now_kb * 1024.0},
               small ? "requests are cut at %lld KiB, though the drive takes more"
                     : "requests of up to %lld KiB",
               (long long)now_kb);
}

void doctor_drive(struct doctor *doctor, unsigned major, unsigned minor)
{
    char name[NAME_BYTES];
    if (major == 0 || read_name(doctor->root, major, minor, name) != 0) {
        return; /* no block device of its own, or no /sys to ask */
    }
    to_whole(doctor->root, name);
    unsigned drives = to_lowest(doctor->root, name);
    say_kind(doctor, name, drives);
    say_scheduler(doctor, name);
    say_request(doctor, name);
}
