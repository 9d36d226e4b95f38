/* Tests findings about stores and their drives. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/doctor/hear.h"
#include "tests/harness/child.h"
#include "tests/harness/mount.h"
#include "tests/harness/test.h"

/* A usable folder is measured and stays empty. */
static void a_good_store(void)
{
    char folder[512];
    snprintf(folder, sizeof folder, "%s/store", test_directory());
    mkdir(folder, 0700);
    struct doctor doctor = hear_alone("");
    doctor_store(&doctor, folder);
    check_contains(heard_text(), " free of ");
    check_contains(heard_text(), "{write_bytes_per_second ");
    check_contains(heard_text(), "{read_bytes_per_second ");
    check_contains(heard_text(), "direct I/O");
    check_cures(heard_text());
    check_uint(test_entries(folder), ==, 0);
}

/* An unusable folder is reported with the reason and a command. */
static void unusable_folders(void)
{
    struct doctor doctor = hear_alone("");
    doctor_store(&doctor, "/nonexistent/store");
    check_contains(heard_text(),
                   "FAIL store /nonexistent/store: it cannot be written to: No such file");
    check_contains(heard_text(), "=> mkdir -p '/nonexistent/store'");
    doctor = hear_alone("");
    doctor_store(&doctor, test_file("plain", "x", 1));
    check_contains(heard_text(), "it cannot be written to: Not a directory");
    doctor = hear_alone("");
    doctor_store(&doctor, "/proc");
    check_contains(heard_text(), "FAIL store /proc: a pseudo file system of the kernel");
    doctor = hear_alone("");
    doctor_store(&doctor, "/nonexistent/it's");
    check_contains(heard_text(), "=> mkdir -p '/nonexistent/it'\\''s'");
    check_int(doctor.worst, ==, TIDE_FAIL);
    check_cures(heard_text());
}

static char mounted[512];
static const char *mount_options;

static int mount_small(void)
{
    return unshare(CLONE_NEWNS) | mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) |
           mount("tide-test", mounted, "tmpfs", 0, mount_options);
}

static int mount_full(void)
{
    if (mount_small() != 0) {
        return -1;
    }
    char path[600];
    static char block[4096];
    snprintf(path, sizeof path, "%s/filler", mounted);
    int file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    while (write(file, block, sizeof block) > 0) {
    }
    return close(file);
}

static int mount_readonly(void)
{
    return mount_small() | mount(NULL, mounted, NULL, MS_REMOUNT | MS_RDONLY, NULL);
}

static const char *hear_mounted(const char *name, const char *options, int (*prepare)(void))
{
    snprintf(mounted, sizeof mounted, "%s/%s", test_directory(), name);
    mkdir(mounted, 0700);
    mount_options = options;
    return hear("", mounted, prepare);
}

/* A full disk is a failure; a small one is measured. */
static void full_disks(void)
{
    const char *heard = hear_mounted("full", "size=4m", mount_full);
    check_contains(heard, "FAIL store ");
    check_contains(heard, "tmpfs, 0 B free of 4.0 MiB");
    check_contains(heard, "=> du -xh");
    check_cures(heard);
    heard = hear_mounted("small", "size=8m", mount_small);
    check_contains(heard, "tmpfs, 8.0 MiB free of 8.0 MiB => du");
    check_contains(heard, "warn store ");
    check_contains(heard, "tmpfs is memory, not a drive => choose a --store on a drive");
    check_contains(heard, "{read_bytes_per_second ");
    check_cures(heard);
}

/* A read-only file system has a cure. */
static void readonly_disk(void)
{
    const char *heard = hear_mounted("readonly", "size=8m", mount_readonly);
    check_contains(heard,
                   "it cannot be written to: Read-only file system => sudo mount -o remount");
}

/* In a container's root, the cure gives the container a drive. */
static void container(void)
{
    char lower[512];
    snprintf(lower, sizeof lower, "%s", test_path("lower"));
    mkdir(lower, 0700);
    const char *folder = test_mount_overlay("container", lower);
    if (folder == NULL) {
        test_skip("no overlay can be mounted here");
    }
    struct doctor doctor = hear_alone("");
    doctor_store(&doctor, folder);
    test_mount_end(folder);
    check_contains(heard_text(), "overlayfs");
    check_contains(heard_text(),
                   "=> docker run -v /a/folder/of/a/drive:/store ... and --store /store");
    check_cures(heard_text());
}

/* A file system without room for another file is a failure. */
static void no_inodes(void)
{
    const char *folder = test_mount_memory("inodes", "size=64m,nr_inodes=1");
    if (folder == NULL) {
        test_skip("no small file system can be mounted here");
    }
    struct doctor doctor = hear_alone("");
    doctor_store(&doctor, folder);
    test_mount_end(folder);
    check_contains(heard_text(), "64.0 MiB free of 64.0 MiB");
    check_contains(heard_text(), "FAIL store ");
    check_contains(heard_text(), "No space left on device");
    check_contains(heard_text(), "; df -i ");
    check_cures(heard_text());
}

struct limit {
    unsigned resource; /* RLIMIT_... */
    rlim_t value;
    const char *says;
    const char *cure;
};

static char limited[512];

static int look_within(void *argument)
{
    const struct limit *limit = argument;
    struct rlimit before;
    struct doctor doctor = hear_alone("");
    if (signal(SIGXFSZ, SIG_IGN) == SIG_ERR || getrlimit(limit->resource, &before) != 0) {
        return 77;
    }
    const struct rlimit low = {limit->value, before.rlim_max};
    if (setrlimit(limit->resource, &low) != 0) {
        return 77;
    }
    doctor_store(&doctor, limited);
    check_int(setrlimit(limit->resource, &before), ==, 0);
    check_contains(heard_text(), "FAIL store ");
    check_contains(heard_text(), limit->says);
    check_contains(heard_text(), limit->cure);
    check_cures(heard_text());
    return 0;
}

/* A limit of the process that prevents a store has a cure. */
static void limits_of_the_process(void)
{
    static const struct limit limits[] = {
        {RLIMIT_NOFILE, 0, "Too many open files", "=> ulimit -n 65536"},
        {RLIMIT_FSIZE, 65536, "File too large", "=> ulimit -f unlimited"},
    };
    snprintf(limited, sizeof limited, "%s/limited", test_directory());
    mkdir(limited, 0700);
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        struct limit limit = limits[i];
        const int rc = test_child(look_within, &limit);
        if (rc == 77) {
            test_skip("this process cannot change its limits");
        }
        check_int(rc, ==, 0);
    }
}

/* An encrypted partition is traced to its drive. */
static void drives_below_mappings(void)
{
    static const char *const files[][2] = {
        {"/sys/dev/block/253:0/uevent", "MAJOR=253\nMINOR=0\nDEVNAME=dm-0\nDEVTYPE=disk\n"},
        {"/sys/block/dm-0/slaves/nvme1n1p2/x", ""},
        {"/sys/class/block/nvme1n1p2/partition", "2\n"},
        {"/sys/block/nvme1n1/nvme1n1p2/partition", "2\n"},
        {"/sys/block/nvme1n1/device/model", "Fast Drive 2TB          \n"},
        {"/sys/block/nvme1n1/device/numa_node", "1\n"},
        {"/sys/block/nvme1n1/queue/rotational", "0\n"},
        {"/sys/block/nvme1n1/queue/scheduler", "none [mq-deadline] bfq\n"},
        {"/sys/block/nvme1n1/queue/max_sectors_kb", "128\n"},
        {"/sys/block/nvme1n1/queue/max_hw_sectors_kb", "2048\n"},
        {NULL, NULL},
    };
    struct doctor doctor = hear_alone(machine("mapped", files));
    doctor_drive(&doctor, 253, 0);
    check_contains(heard_text(), "ok drive nvme1n1: Fast Drive 2TB, near node 1 =>");
    check_contains(heard_text(), "=> echo none | sudo tee /sys/block/nvme1n1/queue/scheduler");
    check_contains(heard_text(), "=> echo 2048 | sudo tee /sys/block/nvme1n1/queue/max_sectors_kb");
    check_cures(heard_text());
}

/* The disks of a RAID are counted; spinning ones are reported. */
static void spinning_disks(void)
{
    static const char *const files[][2] = {
        {"/sys/dev/block/9:0/uevent", "DEVNAME=md0\n"},
        {"/sys/block/md0/slaves/sda/x", ""},
        {"/sys/block/md0/slaves/sdb/x", ""},
        {"/sys/block/sda/queue/rotational", "1\n"},
        {"/sys/block/sdb/queue/rotational", "1\n"},
        {"/sys/block/sda/queue/scheduler", "[bfq] none\n"},
        {"/sys/block/sdb/queue/scheduler", "[bfq] none\n"},
        {NULL, NULL},
    };
    struct doctor doctor = hear_alone(machine("raid", files));
    doctor_drive(&doctor, 9, 0);
    check_contains(heard_text(), "the first of 2: a spinning disk => choose a --store on an NVMe");
    check_contains(heard_text(), "scheduler bfq costs");
    doctor = hear_alone("/nonexistent");
    doctor_drive(&doctor, 9, 0);
    check_string(heard_text(), "");
}

/* A symbolic link is refused, and the cure names the folder. */
static void a_link(void)
{
    char folder[512];
    char link[512];
    snprintf(folder, sizeof folder, "%s/target", test_directory());
    snprintf(link, sizeof link, "%s/link", test_directory());
    mkdir(folder, 0700);
    check_int(symlink(folder, link), ==, 0);
    struct doctor doctor = hear_alone("");
    doctor_store(&doctor, link);
    check_contains(heard_text(), "FAIL store ");
    check_contains(heard_text(), "=> name the folder itself: --store \"$(realpath '");
}

/* A folder that everybody can write to fails, unless it is sticky. */
static void everybody_can_write(void)
{
    char folder[512];
    char cure[600];
    snprintf(folder, sizeof folder, "%s/open", test_directory());
    check_int(mkdir(folder, 0700), ==, 0);
    check_int(chmod(folder, 0777), ==, 0);
    struct doctor doctor = hear_alone("");
    doctor_store(&doctor, folder);
    check_int(doctor.worst, ==, TIDE_FAIL);
    snprintf(cure, sizeof cure, "=> chmod o-w '%s'", folder);
    check_contains(heard_text(), "everybody can write to it");
    check_contains(heard_text(), cure);
    check_true(strstr(heard_text(), "{write_bytes_per_second ") == NULL);
    check_cures(heard_text());
    check_int(chmod(folder, 01777), ==, 0);
    doctor = hear_alone("");
    doctor_store(&doctor, folder);
    check_contains(heard_text(), "{write_bytes_per_second ");
}

TEST_MAIN({"a_good_store", a_good_store}, {"unusable_folders", unusable_folders},
          {"full_disks", full_disks}, {"readonly_disk", readonly_disk},
          {"limits_of_the_process", limits_of_the_process}, {"container", container},
          {"no_inodes", no_inodes}, {"drives_below_mappings", drives_below_mappings},
          {"spinning_disks", spinning_disks}, {"a_link", a_link},
          {"everybody_can_write", everybody_can_write})
