/* build.h: constants that the build generates (build_commit.c.in, build_info.c.in). */
#ifndef OFFLOAD_API_BUILD_H
#define OFFLOAD_API_BUILD_H

#include <stdbool.h>

extern const char api_build_commit[];
extern const char api_build_version[];
extern const char api_build_compiler[];
extern const char api_build_target[];
extern const bool api_build_checks; /* checks that cost time are on by default */
/* {name, state} of each foreign library; the last row is NULL. */
extern const char *const api_build_libraries[][2];

#endif
