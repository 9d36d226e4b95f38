/* mounts.h: the drive of a path, as the system names it. Main thread. */
#ifndef TOOLS_TIDE_MOUNTS_H
#define TOOLS_TIDE_MOUNTS_H

struct cli_mount {
    char device[256]; /* "/dev/nvme0n1p1", "server:/export", "overlay" ...; "": unknown */
    char type[64];    /* "ext4" ... */
    char point[512];  /* where it is mounted */
};

/* Finds the mount of a path or of its nearest existing parent; all fields are "" if unknown. */
void cli_mount_find(const char *path, struct cli_mount *out);

#endif
