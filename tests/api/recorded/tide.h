/* tide.h: what programs were compiled with when the ABI of 0.1 was recorded. Never edited: test_growth.c. */
#ifndef TIDE_TIDE_H
#define TIDE_TIDE_H
#include <stddef.h>
#include <stdint.h>
#if defined(__GNUC__)
#define TIDE_API __attribute__((visibility("default")))
#else
#define TIDE_API
#endif
#ifdef __cplusplus
extern "C" {
#endif
#define TIDE_VERSION_MAJOR 0
#define TIDE_VERSION_MINOR 1
#define TIDE_VERSION_PATCH 0
TIDE_API const char *tide_last_error(void);
TIDE_API const char *tide_version(void);
struct tide_build {
    size_t struct_bytes;
    const char *version;
    const char *commit;
    const char *compiler;
    const char *target;
};
TIDE_API int tide_build_info(struct tide_build *out);
struct tide_backend {
    size_t struct_bytes;
    const char *task;
    const char *name;
    uint64_t built;
};
TIDE_API int tide_backend_at(unsigned index, struct tide_backend *out);
struct tide_library {
    size_t struct_bytes;
    const char *name;
    const char *state;
};
TIDE_API int tide_library_at(unsigned index, struct tide_library *out);
enum tide_log_level { TIDE_LOG_ERROR, TIDE_LOG_WARN, TIDE_LOG_INFO, TIDE_LOG_DEBUG };
struct tide_progress {
    size_t struct_bytes;
    const char *phase;
    uint64_t done;
    uint64_t total;
};
struct tide_context_options {
    size_t struct_bytes;
    uint64_t log_level;
    void (*log)(void *user, uint32_t level, const char *line);
    int (*progress)(void *user, const struct tide_progress *progress);
    void *user;
};
struct tide_context;
TIDE_API int tide_context_create(const struct tide_context_options *options,
                                 struct tide_context **out);
TIDE_API void tide_context_destroy(struct tide_context *context);
struct tide_device_info {
    size_t struct_bytes;
    char name[32];
    char description[128];
    uint64_t memory_total_bytes;
    uint32_t units;
    uint32_t arch;
    int64_t numa_node;
};
TIDE_API int tide_device_count(struct tide_context *context, const char *kind);
TIDE_API int tide_device_describe(struct tide_context *context, const char *device,
                                  struct tide_device_info *out);
struct tide_device_rates {
    size_t struct_bytes;
    double up;
    double down;
    double both;
    double within;
};
TIDE_API int tide_device_measure(struct tide_context *context, const char *device, size_t bytes,
                                 struct tide_device_rates *out);
#ifdef __cplusplus
}
#endif
#endif
