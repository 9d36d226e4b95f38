/* finetune_place.c: parses values separated by commas and colons. */
#include "tools/tide/finetune_place.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/size.h"
#include "tools/tide/paths.h"

static const struct choice {
    const char *stream;
    const char *place;
    uint32_t value;
} choices[] = {
    {"weights", "auto", TIDE_AUTO},
    {"weights", "device", TIDE_DEVICE},
    {"weights", "host", TIDE_HOST},
    {"weights", "store", TIDE_STORE},
    {"states", "auto", TIDE_AUTO},
    {"states", "device", TIDE_DEVICE},
    {"states", "host", TIDE_HOST},
    {"states", "store", TIDE_STORE},
    {"grads", "auto", TIDE_AUTO},
    {"grads", "device", TIDE_DEVICE},
    {"grads", "host", TIDE_HOST},
    {"grads", "store", TIDE_STORE},
    {"acts", "auto", TIDE_ACTS_AUTO},
    {"acts", "keep", TIDE_ACTS_KEEP},
    {"acts", "recompute", TIDE_ACTS_RECOMPUTE},
    {"acts", "host", TIDE_ACTS_HOST},
    {"acts", "store", TIDE_ACTS_STORE},
};

static int refuse_place(const char *part, size_t length)
{
    return core_err_set(-EINVAL,
                        "--place: invalid \"%.*s\"; allowed: weights, states and grads = auto, "
                        "device, host or store, and acts = auto, keep, recompute, host or store",
                        (int)length, part);
}

static bool is_word(const char *text, size_t length, const char *word)
{
    return strlen(word) == length && memcmp(text, word, length) == 0;
}

/* Parses "weights=host". `seen`: a bit for each stream that was set. */
static int take_place(const char *part, size_t length, unsigned *seen,
                      struct tide_engine_options *out)
{
    const char *equals = memchr(part, '=', length);
    if (equals == NULL) {
        return refuse_place(part, length);
    }
    const size_t name = (size_t)(equals - part);
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        if (!is_word(part, name, choices[i].stream) ||
            !is_word(equals + 1, length - name - 1, choices[i].place)) {
            continue;
        }
        const unsigned bit = 1u << (unsigned char)(choices[i].stream[0] - 'a');
        if ((*seen & bit) != 0) {
            return core_err_set(-EINVAL, "--place sets %s twice", choices[i].stream);
        }
        *seen |= bit;
        switch (choices[i].stream[0]) {
        case 'w': out->weights = choices[i].value; break;
        case 's': out->states = choices[i].value; break;
        case 'g': out->grads = choices[i].value; break;
        default: out->acts = choices[i].value; break;
        }
        return 0;
    }
    return refuse_place(part, length);
}

int finetune_place_parse(const char *text, struct tide_engine_options *out)
{
    struct tide_engine_options taken = *out;
    unsigned seen = 0;
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        int rc = take_place(at, length, &seen, &taken);
        if (rc != 0) {
            return rc;
        }
        at += length;
        if (*at == '\0') {
            break;
        }
    }
    *out = taken;
    return 0;
}

int finetune_store_parse(const char *text, struct tide_engine_options *out,
                         struct tide_store_path *paths, char *directory, size_t room)
{
    const char *colon = strrchr(text, ':');
    struct stat info;
    uint64_t bytes = 0;
    size_t length = strlen(text);
    if (colon != NULL && isdigit((unsigned char)colon[1]) && strchr(colon, '/') == NULL) {
        if (core_size_parse(colon + 1, &bytes) != 0) {
            return core_err_prefix(-EINVAL, "--store %s", text);
        }
        if (bytes == 0) {
            return core_err_set(-EINVAL, "--store %s: a store of 0 bytes cannot hold anything",
                                text);
        }
        length = (size_t)(colon - text);
    }
    if (length == 0 || length >= room) {
        return core_err_set(-EINVAL,
                            "--store %s: allowed: the path of a folder, and after a colon its "
                            "limit (--store DIR:64GiB)",
                            text);
    }
    if (colon != NULL && length == strlen(text) && strchr(colon, '/') == NULL &&
        access(text, F_OK) != 0) {
        return core_err_set(-EINVAL,
                            "--store %s: \"%s\" is not a size, and there is no folder with this "
                            "name; allowed: DIR or DIR:64GiB",
                            text, colon + 1);
    }
    snprintf(directory, room, "%.*s", (int)length, text);
    if (stat(directory, &info) == 0 && !S_ISDIR(info.st_mode)) {
        return core_err_set(-EINVAL, "--store %s is not a folder", directory);
    }
    if (out->store_count == TIDE_STORES_MAX) {
        return core_err_set(-EINVAL, "--store may be given at most %d times", TIDE_STORES_MAX);
    }
    for (size_t i = 0; i < out->store_count; i++) {
        if (strcmp(out->stores[i].directory, directory) == 0) {
            return core_err_set(-EINVAL, "--store %s is given twice", directory);
        }
        if (cli_path_is_same(out->stores[i].directory, directory)) {
            return core_err_set(-EINVAL,
                                "--store %s and --store %s are the same folder; give it once",
                                out->stores[i].directory, directory);
        }
    }
    paths[out->store_count++] = (struct tide_store_path){
        .struct_bytes = sizeof *paths, .directory = directory, .bytes = bytes};
    out->stores = paths;
    return 0;
}

int finetune_betas_parse(const char *text, double *beta1, double *beta2)
{
    char *end = NULL;
    double first = strtod(text, &end);
    bool right = end != text && *end == ',';
    const char *rest = right ? end + 1 : text;
    double second = strtod(rest, &end);
    right = right && end != rest && *end == '\0' && first >= 0 && (float)first < 1 && second >= 0 &&
            (float)second < 1;
    if (!right) {
        return core_err_set(-EINVAL,
                            "--betas takes two numbers from 0 to below 1 in fp32, as in 0.9,0.999, "
                            "not \"%s\"",
                            text);
    }
    *beta1 = first;
    *beta2 = second;
    return 0;
}
