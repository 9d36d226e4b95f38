/* doctor.h: what the doctor's topics share. A topic examines and reports one part of the machine,
 * and never fails. Private to offload/doctor and its tests. One thread; a topic ends the teams that
 * it starts. */
#ifndef OFFLOAD_DOCTOR_DOCTOR_H
#define OFFLOAD_DOCTOR_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tide/doctor.h>

struct doctor {
    const char *root; /* borrowed; prefix of /proc and /sys, "" except in tests (sysfile.h) */
    void (*finding)(void *user, const struct tide_finding *finding);
    void *user;
    int64_t memory_ns;     /* time for each of memory's two rates */
    uint64_t memory_bytes; /* limit of each of the two buffers that measure memory */
    int64_t store_ns;      /* time for a store, without filling the file */
    enum tide_verdict worst;
};

/* A finding except its text; NULL is reported as "". */
struct doctor_line {
    enum tide_verdict verdict;
    const char *topic;
    const char *subject;
    const char *cure;
    const char *figure;
    double value;
};

enum { DOCTOR_TEXT_BYTES = 1024 };

void doctor_say(struct doctor *doctor, const struct doctor_line *line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

enum { DOCTOR_SIZE_BYTES = 24 };
/* Writes a size such as "16.0 GiB" to `text`, and returns it. */
const char *doctor_size(uint64_t bytes, char text[DOCTOR_SIZE_BYTES]);

/* Sets the measurements' times and sizes, for about five seconds in all. */
void doctor_init(struct doctor *doctor, size_t stores);

/* Runs the machine's topics, then the topic of each store. */
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
void doctor_drive(struct doctor *doctor, unsigned major, unsigned minor);

/* Advice if no thread can be started. */
extern const char doctor_threads_cure[];
/* Returns the command that raises the limit of locked memory, in this shell if possible. */
const char *doctor_memlock_cure(void);

/* Returns the cgroup's quota in processors, such as 1.5; 0: no quota. */
double doctor_cpu_quota(const char *root);

#endif
