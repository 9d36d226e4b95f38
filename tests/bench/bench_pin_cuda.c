/* bench_pin_cuda.c [SIZE]: how fast host memory (SIZE, by default 8GiB) is pinned for a card: as
 * tide does it, and by cudaHostAlloc. Prints `name value unit` lines. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/mem.h"
#include "core/base/size.h"
#include "core/base/team.h"
#include "core/dev/dev.h"

static void must(int rc)
{
    if (rc < 0) {
        fprintf(stderr, "bench_pin_cuda: %s\n", core_err_message());
        exit(1);
    }
}

static double seconds_since(int64_t start)
{
    return (double)(core_clock_now_ns() - start) * 1e-9;
}

static double registered(struct dev_device *device, struct core_team *team, size_t bytes)
{
    const struct core_region_options options = {
        .name = "pinned memory", .bytes = bytes, .team = team};
    struct core_region region = {0};
    const int64_t start = core_clock_now_ns();
    must(core_region_alloc(&options, &region));
    must(dev_host_register(device, region.base, bytes));
    const double seconds = seconds_since(start);
    printf("# pages: %s\n", core_pages_name(region.pages));
    dev_host_unregister(device, region.base);
    core_region_free(&region);
    return seconds;
}

static double allocated(size_t bytes)
{
    void *memory = NULL;
    const int64_t start = core_clock_now_ns();
    const cudaError_t error = cudaHostAlloc(&memory, bytes, cudaHostAllocPortable);
    const double seconds = seconds_since(start);
    if (error != cudaSuccess) {
        fprintf(stderr, "bench_pin_cuda: cudaHostAlloc of %zu bytes: %s\n", bytes,
                cudaGetErrorString(error));
        exit(1);
    }
    (void)cudaFreeHost(memory);
    return seconds;
}

int main(int argc, char **argv)
{
    uint64_t bytes = (uint64_t)8 << 30;
    if (argc > 2 || (argc > 1 && core_size_parse(argv[1], &bytes) != 0) || bytes == 0) {
        fprintf(stderr, "bench_pin_cuda [SIZE]\n");
        return 2;
    }
    const struct dev_options options = {.memory_bytes = (size_t)64 << 20};
    struct dev_device *device = NULL;
    struct core_team *team = NULL;
    must(dev_open("cuda", &options, &device));
    must(core_team_create(&(struct core_team_options){.name = "touch"}, &team));
    const double ours = registered(device, team, bytes);
    const double theirs = allocated(bytes);
    const double size = (double)bytes * 1e-9;
    printf("pin_registered %.2f GB/s\npin_host_alloc %.2f GB/s\npin_ratio %.2f of_host_alloc\n",
           size / ours, size / theirs, theirs / ours);
    core_team_destroy(team);
    dev_close(device);
    return 0;
}
