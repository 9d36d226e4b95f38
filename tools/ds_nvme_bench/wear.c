/* wear.c: computes I/O time and wear, and parses "7B". */
#include "tools/ds_nvme_bench/wear.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"

struct bench_wear bench_wear_of(double params, double mixed, double rated_bytes)
{
    struct bench_wear wear = {.step_read_bytes = params * BENCH_READ_BYTES,
                              .step_write_bytes = params * BENCH_WRITE_BYTES};
    if (mixed > 0) {
        wear.step_seconds = (wear.step_read_bytes + wear.step_write_bytes) / mixed;
        wear.day_write_bytes = wear.step_write_bytes / wear.step_seconds * 86400;
    }
    if (rated_bytes > 0 && wear.day_write_bytes > 0) {
        wear.life_days = rated_bytes / wear.day_write_bytes;
    }
    return wear;
}

int bench_params_parse(const char *text, double *out)
{
    static const char letters[] = "KMBT";
    char *end = NULL;
    errno = 0;
    double value = strtod(text, &end);
    if (end != text && *end != '\0') {
        const char *letter = strchr(letters, toupper((unsigned char)*end));
        if (letter != NULL) {
            value *= pow(1000, (double)(letter - letters + 1));
            end++;
        }
    }
    if (end == text || *end != '\0' || errno != 0 || !isfinite(value) || value < 1 ||
        value > 1e15) {
        return core_err_set(-EINVAL,
                            "\"%s\" is not a number of parameters such as 7B, 350M or 1.1e9", text);
    }
    *out = value;
    return 0;
}
