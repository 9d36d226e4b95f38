/* gpu.c: whether machine, driver and build support a GPU. No state. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/sysfile.h"
#include "core/dev/dev.h"
#include "offload/doctor/doctor.h"

static const char topic[] = "gpu";

/* Counts NVIDIA GPUs on the PCI bus; -1: it cannot be read. */
static int count_cards(const char *root)
{
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/sys/bus/pci/devices", root);
    DIR *bus = opendir(folder);
    if (bus == NULL) {
        return -1;
    }
    int count = 0;
    for (struct dirent *entry; (entry = readdir(bus)) != NULL;) {
        char vendor[32];
        char class[32];
        bool card = core_sysfile_text(vendor, sizeof vendor, root, "/sys/bus/pci/devices/%s/vendor",
                                      entry->d_name) > 0 &&
                    core_sysfile_text(class, sizeof class, root, "/sys/bus/pci/devices/%s/class",
                                      entry->d_name) > 0 &&
                    strcmp(vendor, "0x10de") == 0 && strncmp(class, "0x03", 4) == 0;
        count += card ? 1 : 0;
    }
    closedir(bus);
    return count;
}

static void say_works(struct doctor *doctor, int devices)
{
    char version[256] = "";
    core_sysfile_text(version, sizeof version, doctor->root, "/proc/driver/nvidia/version");
    version[strcspn(version, "\n")] = '\0';
    doctor_say(doctor, &(struct doctor_line){.topic = topic, .figure = "devices", .value = devices},
               "%d CUDA device%s%s%s", devices, devices == 1 ? "" : "s",
               version[0] != '\0' ? "; " : "", version);
}

static void say_absent(struct doctor *doctor, int rc)
{
    int cards = count_cards(doctor->root);
    char version[16];
    bool driver = core_sysfile_text(version, sizeof version, doctor->root,
                                    "/proc/driver/nvidia/version") > 0;
    if (cards <= 0 && !driver) {
        doctor_say(doctor, &(struct doctor_line){.topic = topic},
                   "no NVIDIA card was found%s; the CPU device is used",
                   cards < 0 ? " (the PCI bus cannot be read)" : "");
        return;
    }
    const char *cure = rc == -ENOTSUP ? "install the CUDA 13 toolkit, then build again"
                       : driver       ? "docker run --gpus all ..., or sudo nvidia-modprobe -u"
                                : "sudo apt-get install nvidia-driver (non-free), then restart";
    doctor_say(doctor, &(struct doctor_line){.verdict = TIDE_WARN, .topic = topic, .cure = cure},
               "a card was found%s, but it cannot be used: %s", driver ? " and a driver" : "",
               core_err_message());
}

void doctor_gpu(struct doctor *doctor)
{
    for (unsigned kind = 0; dev_kind_name(kind) != NULL; kind++) {
        if (strcmp(dev_kind_name(kind), "cuda") == 0) {
            int rc = dev_kind_count(kind);
            if (rc > 0) {
                say_works(doctor, rc);
            } else {
                say_absent(doctor, rc);
            }
        }
    }
}
