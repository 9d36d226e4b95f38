/* block_device.h: finds the drive behind a device number in /sys (`root` is as in sysfile.h). Any
 * thread. */
#ifndef CORE_BASE_BLOCK_DEVICE_H
#define CORE_BASE_BLOCK_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

enum { CORE_BLOCK_NAME_BYTES = 64, CORE_BLOCK_TEXT_BYTES = 64 };

struct core_block_device {
    char name[CORE_BLOCK_NAME_BYTES];      /* "nvme0n1"; below a mapping: the first whole drive */
    unsigned drives;                       /* most devices that one mapping joins (RAID); else 1 */
    char model[CORE_BLOCK_TEXT_BYTES];     /* "": not reported */
    char firmware[CORE_BLOCK_TEXT_BYTES];  /* "": not reported */
    char scheduler[CORE_BLOCK_TEXT_BYTES]; /* "": unknown */
    int node;                              /* NUMA node; -1: unknown */
    bool spins;                            /* a spinning disk; virtual drives: false */
    /* virtio or Xen: properties say little about the hardware */
    bool virtual_drive;
    int64_t max_sectors_kb;    /* 0: unknown */
    int64_t max_hw_sectors_kb; /* 0: unknown */
};

/* Describes the drive of a device number. Returns -ENOENT without a message if there is none
 * (tmpfs, overlayfs, btrfs) or no /sys. */
int core_block_device_find(const char *root, unsigned major, unsigned minor,
                           struct core_block_device *out);

#endif
