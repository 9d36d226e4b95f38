/* libraries.c: the build's optional libraries, and the cost of missing ones. No state. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "offload/doctor/doctor.h"

static const char topic[] = "library";

/* Libraries that every machine benefits from. */
static const struct need {
    const char *name;
    const char *package;
    const char *loss;
} needs[] = {
    {"liburing", "liburing-dev",
     "drives are read by libaio or threads, which needs more processor time"},
    {"onednn", "libdnnl-dev", "products on the CPU device are several times slower"},
    {"hwloc", "libhwloc-dev", "the topology is read from /sys, without cache sizes"},
};

static const struct need *need_of(const char *name)
{
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++) {
        if (strcasecmp(needs[i].name, name) == 0) {
            return &needs[i];
        }
    }
    return NULL;
}

static void say_absent(struct doctor *doctor, const struct tide_library *library)
{
    const struct need *need = need_of(library->name);
    char cure[160] = "";
    if (need != NULL) {
        snprintf(cure, sizeof cure, "sudo apt-get install %s, then build again", need->package);
    }
    doctor_say(doctor,
               &(struct doctor_line){.verdict = need != NULL ? TIDE_WARN : TIDE_OK,
                                     .topic = topic,
                                     .subject = library->name,
                                     .cure = cure},
               "%s%s%s", library->state, need != NULL ? "; " : "", need != NULL ? need->loss : "");
}

/* A library may be found but unused ("found; this build has no ranks over it"). */
static bool is_used(const char *state)
{
    return strncmp(state, "absent", 6) != 0 && strstr(state, "found; this build has no ") == NULL;
}

void doctor_libraries(struct doctor *doctor)
{
    char text[DOCTOR_TEXT_BYTES] = "";
    struct tide_library library = {.struct_bytes = sizeof library};
    for (unsigned i = 0; tide_library_at(i, &library) == 0; i++) {
        size_t used = strlen(text);
        if (is_used(library.state)) {
            bool version = library.state[0] >= '0' && library.state[0] <= '9';
            snprintf(text + used, sizeof text - used, "%s%s%s%s", used > 0 ? ", " : "",
                     library.name, version ? " " : "", version ? library.state : "");
        }
    }
    doctor_say(doctor, &(struct doctor_line){.topic = topic}, "built with %s",
               text[0] != '\0' ? text : "none");
    for (unsigned i = 0; tide_library_at(i, &library) == 0; i++) {
        if (strncmp(library.state, "absent", 6) == 0) {
            say_absent(doctor, &library);
        }
    }
}
