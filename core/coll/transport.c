/* transport.c: chooses the transport: TCP for torchrun, else the module of an MPI library, loaded
 * here. Any thread. */
#include "core/coll/transport.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"

static const char *const module_names[] = {
    [COLL_FLAVOUR_OPENMPI] = "tide_mpi_openmpi.so", [COLL_FLAVOUR_MPICH] = "tide_mpi_mpich.so"};
static const char *const flavour_names[] = {
    [COLL_FLAVOUR_OPENMPI] = "Open MPI", [COLL_FLAVOUR_MPICH] = "MPICH"};

/* relative to the folder of tide's library or program: installed, and in a build */
static const char *const module_places[] = {"tide", "../../core/coll"};

/* Returns false if the file does not exist. */
static bool find_module(enum coll_flavour flavour, char path[PATH_MAX])
{
    Dl_info info;
    if (dladdr(module_names, &info) == 0) {
        return false;
    }
    const char *slash = strrchr(info.dli_fname, '/');
    const int folder = slash != NULL ? (int)(slash - info.dli_fname) : 0;
    for (size_t i = 0; i < sizeof module_places / sizeof module_places[0]; i++) {
        snprintf(path, PATH_MAX, "%.*s/%s/%s", folder > 0 ? folder : 1,
                 folder > 0 ? info.dli_fname : ".", module_places[i], module_names[flavour]);
        if (access(path, R_OK) == 0) {
            return true;
        }
    }
    return false;
}

/* Sets `path` to the first existing module for the launcher's MPI library. */
static int choose_module(enum coll_flavour flavour, char path[PATH_MAX])
{
    for (int f = COLL_FLAVOUR_OPENMPI; f <= COLL_FLAVOUR_MPICH; f++) {
        if ((flavour == COLL_FLAVOUR_ANY || flavour == (enum coll_flavour)f) &&
            find_module((enum coll_flavour)f, path)) {
            return 0;
        }
    }
    return core_err_set(
        -ENOTSUP,
        "ranks in several processes need tide's module for %s, which is not beside tide: install "
        "the development files of that library and build all of tide (meson setup --reconfigure "
        "build; ninja -C build)",
        flavour == COLL_FLAVOUR_ANY ? "Open MPI or MPICH" : flavour_names[flavour]);
}

static int load_module(enum coll_flavour flavour, const struct coll_transport **out)
{
    typedef const struct coll_transport *entry(void);
    char path[PATH_MAX];
    union {
        void *object;
        entry *function;
    } symbol;
    const int rc = choose_module(flavour, path);
    if (rc != 0) {
        return rc;
    }
    /* RTLD_GLOBAL: modules of Open MPI need its symbols. Never closed: MPI cannot be unloaded. */
    void *module = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    symbol.object = module != NULL ? dlsym(module, COLL_MPI_SYMBOL) : NULL;
    if (symbol.object == NULL) {
        return core_err_set(-ENOTSUP, "cannot load %s: %s", path, dlerror());
    }
    const struct coll_transport *found = symbol.function();
    if (found->version != COLL_TRANSPORT_VERSION) {
        return core_err_set(-ENOTSUP, "%s is of another version of tide (%d, expected %d)", path,
                            found->version, COLL_TRANSPORT_VERSION);
    }
    *out = found;
    return 0;
}

int coll_transport_load(const struct coll_launch *launch, const struct coll_transport **out)
{
    if (launch->torchrun) {
        *out = &coll_transport_tcp;
        return 0;
    }
    return load_module(launch->flavour, out);
}
