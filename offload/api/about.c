/* about.c: describes this build: version, back ends, libraries. Constant; any thread. */
#include <errno.h>
#include <tide/tide.h>

#include "core/base/err.h"
#include "core/coll/coll.h"
#include "core/dev/dev.h"
#include "offload/api/abi.h"
#include "offload/api/build.h"

const char *tide_last_error(void)
{
    return core_err_message();
}

const char *tide_version(void)
{
    return api_build_version;
}

int tide_build_info(struct tide_build *out)
{
    const struct tide_build info = {
        .version = api_build_version,
        .commit = api_build_commit,
        .compiler = api_build_compiler,
        .target = api_build_target,
    };
    return abi_struct_write("tide_build", &info, sizeof info, out);
}

/* A module's back ends. `backend` returns NULL after the last name. */
static const struct module {
    const char *name;
    const char *(*backend)(unsigned index);
    bool (*built)(unsigned index);
} modules[] = {
    {"device", dev_kind_name, dev_kind_built},
    {"ranks", coll_kind_name, coll_kind_built},
};

int tide_backend_at(unsigned index, struct tide_backend *out)
{
    unsigned before = 0;
    for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++) {
        unsigned count = 0;
        while (modules[i].backend(count) != NULL) {
            count++;
        }
        if (index < before + count) {
            const struct tide_backend backend = {
                .task = modules[i].name,
                .name = modules[i].backend(index - before),
                .built = modules[i].built(index - before),
            };
            return abi_struct_write("tide_backend", &backend, sizeof backend, out);
        }
        before += count;
    }
    return core_err_set(-ENOENT, "back end %u does not exist; there are %u", index, before);
}

int tide_library_at(unsigned index, struct tide_library *out)
{
    unsigned count = 0;
    while (api_build_libraries[count][0] != NULL) {
        count++;
    }
    if (index >= count) {
        return core_err_set(-ENOENT, "library %u does not exist; there are %u", index, count);
    }
    const struct tide_library library = {
        .name = api_build_libraries[index][0],
        .state = api_build_libraries[index][1],
    };
    return abi_struct_write("tide_library", &library, sizeof library, out);
}
