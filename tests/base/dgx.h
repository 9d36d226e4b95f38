/* dgx.h: an invented machine like a DGX A100, as files and as XML; cores have two processors. */
#ifndef TESTS_BASE_DGX_H
#define TESTS_BASE_DGX_H

enum { NODES = 8, CORES = 4, GPUS = 8, DRIVES = 4 }; /* CORES per node */

extern const int gpu_node[GPUS];
extern const char *const gpu_bus[GPUS];
extern const int drive_node[DRIVES];
extern const char *const drive_bus[DRIVES];

/* Writes the machine's /proc and /sys below a new root and returns the root. */
const char *dgx_files(const char *name);
/* Adds a PCI device below the root. */
void dgx_put_pci(const char *root, const char *bus, const char *class, int node);
/* Writes a file below the root; the path is formatted. */
void dgx_put(const char *root, const char *text, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Writes the XML that lstopo would print for this machine, and returns the file's path. */
const char *dgx_xml(void);

#endif
