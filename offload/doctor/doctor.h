/* doctor.h: what the doctor's topics share: the machine they look at and where findings go.
 * A topic is a function that looks and says; it never fails. What cannot be read is said, too.
 * Private to offload/doctor and its tests. One thread; teams that measure end before their topic
 * does. */
#ifndef OFFLOAD_DOCTOR_DOCTOR_H
#define OFFLOAD_DOCTOR_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tide/doctor.h>

struct doctor {
    const char
        *root; /* borrowed; in front of /proc and /sys: "" but in tests (core/base/sysfile.h) */
    void (*finding)(void *user, const struct tide_finding *finding);
    void *user;
    int64_t memory_ns;     /* how long each of memory's two rates is measured */
    uint64_t memory_bytes; /* most that each of its two buffers has */
    int64_t store_ns;      /* how long a store is measured */
    enum tide_verdict worst;
};

/* What is said beside the text; fields that are NULL become "". */
struct doctor_line {
    enum tide_verdict verdict;
    const char *topic;
    const char *subject;
    const char *cure;
    const char *figure;
    double value;
};

enum { DOCTOR_TEXT_BYTES = 1024 };

/* Hands the finding over. */
void doctor_say(struct doctor *doctor, const struct doctor_line *line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* "16.0 GiB"; returns text. */
enum { DOCTOR_SIZE_BYTES = 24 };
const char *doctor_size(uint64_t bytes, char text[DOCTOR_SIZE_BYTES]);

/* Sets how long and how much is measured, so that `stores` stores end within five seconds too. */
void doctor_init(struct doctor *doctor, size_t stores);

/* All topics that concern the machine, then each store. */
void doctor_run(struct doctor *doctor, const char *const *stores, size_t count);

void doctor_cpu(struct doctor *doctor);
void doctor_memory(struct doctor *doctor);
void doctor_numa(struct doctor *doctor);
void doctor_pages(struct doctor *doctor);
void doctor_memlock(struct doctor *doctor);
void doctor_io(struct doctor *doctor);
void doctor_gpu(struct doctor *doctor);
void doctor_libraries(struct doctor *doctor);
void doctor_store(struct doctor *doctor, const char *folder);
/* The block device `major`:`minor` under a store. */
void doctor_drive(struct doctor *doctor, unsigned major, unsigned minor);

/* What helps where no thread can be started. */
extern const char doctor_threads_cure[];
/* The command that raises the limit of locked memory: in this shell where the hard limit allows. */
const char *doctor_memlock_cure(void);

/* Processors that the cgroup's quota gives, as 1.5; 0 where there is no quota. */
double doctor_cpu_quota(const char *root);

#endif
