/* number.c: formats numbers for people. No state; any thread. */
#include "tools/tide/cli.h"

int cli_rate_digits(double rate)
{
    return rate >= 10 || rate == 0 ? 0 : rate >= 1 ? 1 : 3;
}

const char *cli_count_print(uint64_t count, char out[CLI_NUMBER_BYTES])
{
    const double number = (double)count;
    if (number < 1e6) {
        snprintf(out, CLI_NUMBER_BYTES, "%.1fK", number / 1e3);
    } else if (number < 1e9) {
        snprintf(out, CLI_NUMBER_BYTES, "%.1fM", number / 1e6);
    } else {
        snprintf(out, CLI_NUMBER_BYTES, "%.2fB", number / 1e9);
    }
    return out;
}

const char *cli_bytes_print(uint64_t bytes, char out[CLI_NUMBER_BYTES])
{
    const double number = (double)bytes;
    if (number < 1e5) {
        snprintf(out, CLI_NUMBER_BYTES, "%.1f KB", number / 1e3);
    } else if (number < 1e8) {
        snprintf(out, CLI_NUMBER_BYTES, "%.1f MB", number / 1e6);
    } else {
        snprintf(out, CLI_NUMBER_BYTES, "%.3f GB", number / 1e9);
    }
    return out;
}
