/* Tests the descriptions of block devices on an invented /sys. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "core/base/block_device.h"
#include "tests/harness/test.h"

static void put(const char *path, const char *text)
{
    char whole[512];
    snprintf(whole, sizeof whole, "%s%s", test_directory(), path);
    for (char *at = whole + strlen(test_directory()) + 1; *at != '\0'; at++) {
        if (*at == '/') {
            *at = '\0';
            mkdir(whole, 0700);
            *at = '/';
        }
    }
    FILE *file = fopen(whole, "w");
    check_true(file != NULL);
    fputs(text, file);
    check_int(fclose(file), ==, 0);
}

static void nvme_partition(void)
{
    struct core_block_device block;
    put("/sys/dev/block/259:2/uevent",
        "MAJOR=259\nMINOR=2\nDEVNAME=nvme0n1p2\nDEVTYPE=partition\n");
    put("/sys/class/block/nvme0n1p2/partition", "2\n");
    put("/sys/block/nvme0n1/nvme0n1p2/partition", "2\n");
    put("/sys/block/nvme0n1/device/model", "Fast Drive 9000   \n");
    put("/sys/block/nvme0n1/device/firmware_rev", "1.2.3\n");
    put("/sys/block/nvme0n1/device/numa_node", "1\n");
    put("/sys/block/nvme0n1/queue/scheduler", "[none] mq-deadline\n");
    put("/sys/block/nvme0n1/queue/max_sectors_kb", "1280\n");
    put("/sys/block/nvme0n1/queue/max_hw_sectors_kb", "2048\n");
    put("/sys/block/nvme0n1/queue/rotational", "0\n");
    check_int(core_block_device_find(test_directory(), 259, 2, &block), ==, 0);
    check_string(block.name, "nvme0n1");
    check_string(block.model, "Fast Drive 9000");
    check_string(block.firmware, "1.2.3");
    check_string(block.scheduler, "none");
    check_int(block.node, ==, 1);
    check_int(block.drives, ==, 1);
    check_int(block.max_sectors_kb, ==, 1280);
    check_int(block.max_hw_sectors_kb, ==, 2048);
    check_true(!block.spins && !block.virtual_drive);
}

static void volume_over_two_drives(void)
{
    struct core_block_device block;
    put("/sys/dev/block/253:0/uevent", "DEVNAME=dm-0\n");
    put("/sys/block/dm-0/slaves/md0", "");
    put("/sys/block/md0/slaves/sdb", "");
    put("/sys/block/md0/slaves/sda", "");
    put("/sys/block/sda/queue/rotational", "1\n");
    check_int(core_block_device_find(test_directory(), 253, 0, &block), ==, 0);
    check_string(block.name, "sda");
    check_int(block.drives, ==, 2);
    check_true(block.spins);
    check_int(block.node, ==, -1);
    check_string(block.scheduler, "");
}

static void virtual_and_absent(void)
{
    struct core_block_device block = {.node = 7};
    put("/sys/dev/block/254:0/uevent", "DEVNAME=vda\n");
    put("/sys/block/vda/queue/rotational", "1\n");
    check_int(core_block_device_find(test_directory(), 254, 0, &block), ==, 0);
    check_true(block.virtual_drive && !block.spins);
    check_int(core_block_device_find(test_directory(), 0, 30, &block), ==, -ENOENT);
    check_int(core_block_device_find(test_directory(), 8, 1, &block), ==, -ENOENT);
    check_string(block.name, "vda");
    struct stat info;
    check_int(stat(test_directory(), &info), ==, 0);
    int rc = core_block_device_find("", major(info.st_dev), minor(info.st_dev), &block);
    test_note("here: %s", rc == 0 ? block.name : "no block device");
}

TEST_MAIN({"nvme_partition", nvme_partition}, {"volume_over_two_drives", volume_over_two_drives},
          {"virtual_and_absent", virtual_and_absent})
