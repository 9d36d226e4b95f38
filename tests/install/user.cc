// user.cc: user.c in C++.
#include <tide/engine.h>
#include <tide/tide.h>

#include <cstdint>
#include <cstdio>
#include <string>

int main()
{
    tide_build build = {};
    build.struct_bytes = sizeof build;
    tide_device_info info = {};
    info.struct_bytes = sizeof info;
    std::string lines;
    tide_context_options options = {};
    options.struct_bytes = sizeof options;
    options.log_level = TIDE_LOG_DEBUG;
    options.user = &lines;
    options.log = [](void *user, std::uint32_t, const char *line) {
        *static_cast<std::string *>(user) += line;
    };
    tide_context *context = nullptr;
    if (tide_build_info(&build) != 0 || tide_context_create(&options, &context) != 0 ||
        tide_device_describe(context, "cpu", &info) != 0) {
        std::fprintf(stderr, "%s\n", tide_last_error());
        return 1;
    }
    std::printf("%s %s\n", build.version, info.name);
    bool failed = tide_device_describe(context, "abacus", &info) == 0 ||
                  lines.find("abacus") == std::string::npos;
    tide_engine_options training;
    tide_engine_options_init(&training, sizeof training);
    training.model = "/nowhere";
    training.length = 8;
    tide_engine *engine = nullptr;
    failed = failed || tide_engine_create(context, &training, &engine) == 0 || engine != nullptr ||
             std::string(tide_last_error()).find("/nowhere") == std::string::npos;
    tide_context_destroy(context);
    return failed;
}
