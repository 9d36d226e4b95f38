/* doctor.h: what programs were compiled with when the ABI of 0.1 was recorded. Never edited: test_growth.c. */
#ifndef TIDE_DOCTOR_H
#define TIDE_DOCTOR_H
#include <stddef.h>
#include <tide/tide.h>
#ifdef __cplusplus
extern "C" {
#endif
enum tide_verdict {
    TIDE_OK,
    TIDE_WARN,
    TIDE_FAIL,
};
struct tide_finding {
    size_t struct_bytes;
    uint64_t verdict;
    const char *topic;
    const char *subject;
    const char *text;
    const char *cure;
    const char *figure;
    double value;
};
struct tide_doctor_options {
    size_t struct_bytes;
    const char *const *stores;
    size_t store_count;
    void (*finding)(void *user, const struct tide_finding *finding);
    void *user;
};
TIDE_API int tide_doctor(struct tide_context *context, const struct tide_doctor_options *options);
#ifdef __cplusplus
}
#endif
#endif
