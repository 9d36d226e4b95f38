/* io.c: which I/O interfaces the kernel allows, and how to enable others. No state. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "aio/backend.h"
#include "core/base/sysfile.h"
#include "offload/doctor/doctor.h"

static const char topic[] = "io";

enum { AIO_EVENTS_MIN = 4096 };

/* Returns how to enable io_uring, by its probe's result and kernel.io_uring_disabled. */
static const char *uring_cure(const struct doctor *doctor, int rc)
{
    int64_t disabled = 0;
    if (core_sysfile_number(&disabled, doctor->root, "/proc/sys/kernel/io_uring_disabled") == 0 &&
        disabled != 0) {
        return "sudo sysctl kernel.io_uring_disabled=0";
    }
    switch (rc) {
    case -ENOTSUP: return "sudo apt-get install liburing-dev, then build again";
    case -ENOMEM: return doctor_memlock_cure();
    case -EMFILE:
    case -ENFILE: return "ulimit -n 65536";
    case -EPERM:
    case -EACCES:
    case -ENOSYS:
        return "docker run --security-opt seccomp=unconfined ... (or a profile that allows "
               "io_uring_setup, io_uring_enter and io_uring_register); else Linux 5.15 or later";
    default: return "use Linux 5.15 or later";
    }
}

static void say_uring(struct doctor *doctor)
{
    char reason[AIO_REASON_BYTES] = "";
    int rc = aio_probe_uring(reason, sizeof reason);
    if (rc == 0) {
        doctor_say(doctor, &(struct doctor_line){.topic = topic, .subject = "io_uring"},
                   "works here");
        return;
    }
    doctor_say(doctor,
               &(struct doctor_line){.verdict = TIDE_WARN,
                                     .topic = topic,
                                     .subject = "io_uring",
                                     .cure = uring_cure(doctor, rc)},
               "does not work (%s): %s", strerror(-rc), reason);
}

static void say_libaio(struct doctor *doctor)
{
    char reason[AIO_REASON_BYTES] = "";
    int64_t used = 0;
    int64_t most = 0;
    int rc = aio_probe_libaio(reason, sizeof reason);
    bool counted = core_sysfile_number(&used, doctor->root, "/proc/sys/fs/aio-nr") == 0 &&
                   core_sysfile_number(&most, doctor->root, "/proc/sys/fs/aio-max-nr") == 0;
    if (counted && most - used < AIO_EVENTS_MIN) {
        doctor_say(doctor,
                   &(struct doctor_line){.verdict = TIDE_WARN,
                                         .topic = topic,
                                         .subject = "libaio",
                                         .cure = "sudo sysctl fs.aio-max-nr=1048576"},
                   "%lld of the machine's %lld requests are in use", (long long)used,
                   (long long)most);
        return;
    }
    /* not a warning: libaio is only needed without io_uring */
    doctor_say(doctor, &(struct doctor_line){.topic = topic, .subject = "libaio"}, "%s%s",
               rc == 0 ? "works here" : "not used: ", rc == 0 ? "" : reason);
}

static void say_choice(struct doctor *doctor)
{
    char reason[AIO_REASON_BYTES] = "";
    const struct aio_backend *backend = NULL;
    if (aio_backend_choose(NULL, true, reason, sizeof reason, &backend) == 0) {
        doctor_say(doctor, &(struct doctor_line){.topic = topic, .subject = "choice"}, "%s",
                   reason);
    }
}

void doctor_io(struct doctor *doctor)
{
    say_uring(doctor);
    say_libaio(doctor);
    say_choice(doctor);
}
