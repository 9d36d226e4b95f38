/* doctor.c: runs every topic in turn and passes its findings to the application. Owns nothing; one
 * thread. */
#include "offload/doctor/doctor.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "core/base/err.h"
#include "offload/api/abi.h"
#include "offload/api/context.h"

/* Time for all stores together; the rest of the five seconds is for the machine. */
#define STORES_NS    3000000000
#define STORE_NS_MAX 1400000000
#define MEMORY_NS    150000000
#define MEMORY_BYTES (UINT64_C(512) << 20)

static const char *given(const char *text)
{
    return text != NULL ? text : "";
}

void doctor_say(struct doctor *doctor, const struct doctor_line *line, const char *format, ...)
{
    char text[DOCTOR_TEXT_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    const struct tide_finding finding = {
        .struct_bytes = sizeof finding,
        .verdict = line->verdict,
        .topic = line->topic,
        .subject = given(line->subject),
        .text = text,
        .cure = given(line->cure),
        .figure = given(line->figure),
        .value = line->value,
    };
    if (line->verdict > doctor->worst) {
        doctor->worst = line->verdict;
    }
    doctor->finding(doctor->user, &finding);
}

const char *doctor_size(uint64_t bytes, char text[DOCTOR_SIZE_BYTES])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double size = (double)bytes;
    unsigned unit = 0;
    while (size >= 1024.0 && unit < 5) {
        size /= 1024.0;
        unit++;
    }
    snprintf(text, DOCTOR_SIZE_BYTES, unit == 0 || size >= 100.0 ? "%.0f %s" : "%.1f %s", size,
             units[unit]);
    return text;
}

void doctor_init(struct doctor *doctor, size_t stores)
{
    int64_t share = stores > 0 ? STORES_NS / (int64_t)stores : STORE_NS_MAX;
    *doctor = (struct doctor){
        .root = "",
        .memory_ns = MEMORY_NS,
        .memory_bytes = MEMORY_BYTES,
        .store_ns = share < STORE_NS_MAX ? share : STORE_NS_MAX,
    };
}

void doctor_run(struct doctor *doctor, const char *const *stores, size_t count)
{
    doctor_cpu(doctor);
    doctor_memory(doctor);
    doctor_numa(doctor);
    doctor_pages(doctor);
    doctor_memlock(doctor);
    doctor_io(doctor);
    doctor_gpu(doctor);
    doctor_libraries(doctor);
    for (size_t i = 0; i < count; i++) {
        doctor_store(doctor, stores[i]);
    }
}

static int check_options(const struct tide_doctor_options *options)
{
    if (options->finding == NULL) {
        return core_err_set(-EINVAL, "the doctor's options have no callback `finding`");
    }
    if (options->store_count > 0 && options->stores == NULL) {
        return core_err_set(-EINVAL,
                            "the doctor's options have store_count %zu, but stores is NULL",
                            options->store_count);
    }
    for (size_t i = 0; i < options->store_count; i++) {
        if (options->stores[i] == NULL) {
            return core_err_set(-EINVAL, "store %zu of the doctor's options is NULL", i);
        }
    }
    return 0;
}

int tide_doctor(struct tide_context *context, const struct tide_doctor_options *options)
{
    struct tide_doctor_options known;
    int rc = abi_struct_read("tide_doctor_options", options, &known, sizeof known);
    if (rc == 0) {
        rc = check_options(&known);
    }
    if (rc != 0) {
        return rc;
    }
    const struct context_before before = context_enter(context);
    struct doctor doctor;
    doctor_init(&doctor, known.store_count);
    doctor.finding = known.finding;
    doctor.user = known.user;
    doctor_run(&doctor, known.stores, known.store_count);
    context_leave(&before);
    return (int)doctor.worst;
}
