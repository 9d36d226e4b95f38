/* dgx.h: a machine built like a DGX A100, described twice: eight nodes of four cores (two
 * processors each) and 128 GiB, GPUs in pairs on nodes 3, 1, 7 and 5, drives on nodes 2 and 6. */
#ifndef TESTS_BASE_DGX_H
#define TESTS_BASE_DGX_H

enum { NODES = 8, CORES = 4, GPUS = 8, DRIVES = 4 }; /* CORES per node */

extern const int gpu_node[GPUS];
extern const char *const gpu_bus[GPUS];
extern const int drive_node[DRIVES];
extern const char *const drive_bus[DRIVES];

/* Writes the /proc and /sys of the machine below a new root of this name and returns the root. */
const char *dgx_files(const char *name);
/* Adds a PCI device below such a root. */
void dgx_put_pci(const char *root, const char *bus, const char *class, int node);
/* Writes `text` to a file below the root; the path is formatted. */
void dgx_put(const char *root, const char *text, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Returns the XML file that lstopo would write on this machine. */
const char *dgx_xml(void);

#endif
