// optimizer.cc: uses libtide's optimizer in C++: weights in bfloat16, gradients that are added up
// over two passes, and the states of a parameter as numbers.
//
//     c++ -std=c++11 optimizer.cc $(pkg-config --cflags --libs tide) -o optimizer
//     ./optimizer DIRECTORY
//
// DIRECTORY is on a fast drive, of which the program uses up to 64 MiB.
#include <tide/optimizer.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

static void check(int rc)
{
    if (rc < 0) {
        throw std::runtime_error(tide_last_error());
    }
}

static float widen(uint16_t half)
{
    const uint32_t bits = static_cast<uint32_t>(half) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

using optimizer = std::unique_ptr<tide_optim, void (*)(tide_optim *)>;

static optimizer create(const char *directory, std::vector<uint16_t> &weights)
{
    tide_optim_group group;
    tide_optim_options options;
    check(tide_optim_group_init(&group, sizeof group));
    check(tide_optim_options_init(&options, sizeof options));
    tide_optim_parameter parameter = {};
    parameter.struct_bytes = sizeof parameter;
    parameter.name = "weights";
    parameter.weights = weights.data();
    parameter.elements = weights.size();
    parameter.precision = TIDE_BF16;
    parameter.gradients = TIDE_FP32;
    tide_store_path store = {};
    store.struct_bytes = sizeof store;
    store.directory = directory;
    store.bytes = 64 << 20;
    group.lr = 0.05;
    options.parameters = &parameter;
    options.parameter_count = 1;
    options.groups = &group;
    options.group_count = 1;
    options.accumulate = 1;
    options.host_bytes = 64 << 20;
    options.stores = &store;
    options.store_count = 1;
    tide_optim *optim = nullptr;
    check(tide_optim_create(nullptr, &options, &optim));
    return optimizer(optim, tide_optim_destroy);
}

static void run(const char *directory)
{
    std::vector<uint16_t> weights(1 << 20); // must outlive the optimizer
    std::vector<float> gradients(weights.size());
    const optimizer optim = create(directory, weights);
    for (int step = 0; step < 100; step++) {
        uint64_t token = 0;
        check(tide_optim_wait_parameter(optim.get(), 0));
        for (int pass = 0; pass < 2; pass++) { // towards the mean of the targets 1 and 2
            for (std::size_t i = 0; i < weights.size(); i++) {
                gradients[i] = widen(weights[i]) - static_cast<float>(pass + 1);
            }
            check(tide_optim_submit(optim.get(), 0, gradients.data(), pass == 1, &token));
        }
        check(tide_optim_step(optim.get(), &token));
        check(tide_optim_wait(optim.get(), token)); // `gradients` may change again
    }
    std::vector<float> master(weights.size());
    tide_optim_arrays arrays = {};
    arrays.struct_bytes = sizeof arrays;
    arrays.elements = master.size();
    arrays.master = master.data();
    uint64_t updates = 0;
    check(tide_optim_get_states(optim.get(), 0, &arrays, &updates));
    std::printf("%.2f after %d updates\n", static_cast<double>(master[0]),
                static_cast<int>(updates));
    if (std::fabs(master[0] - widen(weights[0])) > 0.01f) {
        throw std::runtime_error("the weights are not the rounded masters");
    }
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        std::fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
        return 2;
    }
    try {
        run(argv[1]);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
