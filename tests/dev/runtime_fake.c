/* runtime_fake.c: see runtime.h. */
#include "tests/dev/fake_cuda.h"
#include "tests/dev/runtime.h"

void runtime_reset(void)
{
    fake_reset((size_t)4 << 30);
}

int runtime_live(void)
{
    return fake_live();
}

int runtime_stream_run(void *stream, int (*run)(void *context, const void *arguments),
                       const void *arguments, size_t bytes)
{
    return fake_stream_run(stream, run, arguments, bytes);
}
