/* Tests that kern_lt_destroy() does not unload cuBLASLt. */
#include <stdio.h>

#include "kernels/cuda/product_lt.h"
#include "tests/dev/fake_cuda.h"
#include "tests/harness/test.h"

static void the_library_stays_loaded(void)
{
    fake_reset((size_t)1 << 30);
    for (unsigned turn = 1; turn <= 3; turn++) {
        char version[32];
        struct kern_lt *lt = NULL;
        snprintf(version, sizeof version, "cuBLASLt %u, driver", turn);
        check_int(kern_lt_create(&lt), ==, 0);
        check_contains(kern_lt_describe(lt), version); /* 1 again after unloading */
        kern_lt_destroy(lt);
    }
}

TEST_MAIN({"the_library_stays_loaded", the_library_stays_loaded})
