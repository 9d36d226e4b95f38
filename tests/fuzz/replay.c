/* replay.c: runs a target on the seeds, on some of their prefixes, and on seeds with one changed
 * byte. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/file.h"
#include "tests/fuzz/fuzz.h"
#include "tests/harness/test.h"

static void run_changed(const uint8_t *seed, size_t bytes)
{
    static const uint8_t odd[] = {'"', '\\', '{', ']', ',', '/', '9', 0x00, 0xC3, 0xFF};
    size_t step = 1 + bytes / (TEST_SLOW ? 40 : 400);
    for (size_t i = 0; i < bytes; i += step) {
        /* A copy of exact size, so that ASan detects a read beyond it. */
        uint8_t *copy = malloc(bytes);
        check_true(copy != NULL);
        memcpy(copy, seed, bytes);
        copy[i] = odd[i % sizeof odd];
        LLVMFuzzerTestOneInput(copy, bytes);
        LLVMFuzzerTestOneInput(copy, i);
        free(copy);
    }
}

static void seeds(void)
{
    DIR *folder = opendir(FUZZ_SEEDS);
    check_true(folder != NULL);
    size_t count = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char path[1024];
        char *text = NULL;
        size_t bytes = 0;
        if (entry->d_name[0] == '.') {
            continue;
        }
        snprintf(path, sizeof path, "%s/%s", FUZZ_SEEDS, entry->d_name);
        check_int(core_file_read(path, 1 << 20, &text, &bytes), ==, 0);
        LLVMFuzzerTestOneInput((const uint8_t *)text, bytes);
        run_changed((const uint8_t *)text, bytes);
        free(text);
        count++;
    }
    closedir(folder);
    check_uint(count, >, 4);
}

TEST_MAIN({"seeds", seeds})
