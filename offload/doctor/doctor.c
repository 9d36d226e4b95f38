/* doctor.c: runs the topics in turn. Owns nothing; one thread. */
#include "offload/doctor/doctor.h"

#include <errno.h>

#include "core/base/err.h"
#include "offload/api/abi.h"
#include "offload/api/context.h"

/* Time for all stores; the rest of five seconds is for the machine. */
#define STORES_NS    3000000000
#define STORE_NS_MAX 1400000000
#define MEMORY_NS    150000000
#define MEMORY_BYTES (UINT64_C(512) << 20)

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
