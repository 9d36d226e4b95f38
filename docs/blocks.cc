// blocks.cc: uses a block store of libtide in C++; blocks are read while the program continues.
//
//     c++ -std=c++11 blocks.cc $(pkg-config --cflags --libs tide) -o blocks
//     ./blocks DIRECTORY
//
// DIRECTORY is on a fast drive. The program uses 16 MiB of the drive and 4 MiB of memory.
#include <tide/blocks.h>

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

static void check(int rc)
{
    if (rc < 0) {
        throw std::runtime_error(tide_last_error());
    }
}

static void run(tide_blocks *blocks)
{
    const int count = 8;
    std::vector<int> numbers(1 << 18);
    for (int i = 0; i < count; i++) {
        numbers.assign(numbers.size(), i);
        check(tide_blocks_put(blocks, ("part " + std::to_string(i)).c_str(), numbers.data(),
                              numbers.size() * sizeof(int)));
    }
    std::vector<std::vector<int>> parts(count, std::vector<int>(numbers.size()));
    std::vector<uint64_t> tokens(count);
    for (int i = 0; i < count; i++) {
        check(tide_blocks_get_begin(blocks, ("part " + std::to_string(i)).c_str(), parts[i].data(),
                                    parts[i].size() * sizeof(int), nullptr, &tokens[i]));
    }
    long long sum = 0;
    for (int i = 0; i < count; i++) { // any thread may wait for a token
        check(tide_blocks_wait(blocks, tokens[i], nullptr));
        for (int number : parts[i]) {
            sum += number;
        }
    }
    std::printf("sum %lld\n", sum);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        std::fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
        return 2;
    }
    tide_store_path store = {};
    store.struct_bytes = sizeof store;
    store.directory = argv[1];
    store.bytes = 16 << 20;
    tide_blocks_options options = {};
    options.struct_bytes = sizeof options;
    options.host_bytes = 4 << 20;
    options.stores = &store;
    options.store_count = 1;
    tide_blocks *blocks = nullptr;
    try {
        check(tide_blocks_create(nullptr, &options, &blocks));
        const std::unique_ptr<tide_blocks, void (*)(tide_blocks *)> owner(blocks,
                                                                          tide_blocks_destroy);
        run(blocks);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
