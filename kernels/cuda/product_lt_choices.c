/* product_lt_choices.c: the ways to compute products that were chosen, in memory and in a file of
 * lines: "tide-lt 1|machine|key in hex|way in hex". */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "kernels/cuda/product_lt.h"

enum {
    LOCK_TRIES = 1000, /* that signals interrupt */
    KEY_BYTES = sizeof(struct kern_lt_key),
    ALGO_BYTES = KERN_LT_ALGO_WORDS * sizeof(uint64_t),
    LINE_BYTES = 1024
};
static const char mark[] = "tide-lt 1|";

static void warn(struct kern_lt_choices *choices, const char *what, const char *why)
{
    if (!choices->warned) {
        core_log(CORE_LOG_WARN, "%s %s: %s", what, choices->path, why);
        choices->warned = true;
    }
}

static void hex_write(char *to, const void *from, size_t bytes)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < bytes; i++) {
        const unsigned byte = ((const unsigned char *)from)[i];
        *to++ = digits[byte >> 4];
        *to++ = digits[byte & 15];
    }
    *to = '\0';
}

static bool hex_read(const char *from, void *to, size_t bytes)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < 2 * bytes; i++) {
        const char *digit = from[i] != '\0' ? strchr(digits, from[i]) : NULL;
        if (digit == NULL) {
            return false;
        }
        unsigned char *byte = (unsigned char *)to + i / 2;
        *byte = (unsigned char)((unsigned)*byte << 4 | (unsigned)(digit - digits));
    }
    return true;
}

struct kern_lt_choice *kern_lt_choices_find(const struct kern_lt_choices *choices,
                                            const struct kern_lt_key *key)
{
    for (size_t i = 0; i < choices->count; i++) {
        if (memcmp(&choices->list[i].key, key, sizeof *key) == 0) {
            return &choices->list[i];
        }
    }
    return NULL;
}

static void put(struct kern_lt_choices *choices, const struct kern_lt_choice *choice)
{
    struct kern_lt_choice *same = kern_lt_choices_find(choices, &choice->key);
    if (same != NULL) {
        *same = *choice;
        return;
    }
    choices->list[choices->next] = *choice;
    choices->next = (choices->next + 1) % KERN_LT_CHOICES_MAX;
    choices->count += choices->count < KERN_LT_CHOICES_MAX;
}

/* 1: a line for this machine; 0: for another; -1: no line of ours. */
static int parse(const struct kern_lt_choices *choices, const char *line,
                 struct kern_lt_choice *choice)
{
    const size_t machine = strlen(choices->machine);
    if (strncmp(line, mark, sizeof mark - 1) != 0) {
        return -1;
    }
    line += sizeof mark - 1;
    if (strncmp(line, choices->machine, machine) != 0 || line[machine] != '|') {
        return strchr(line, '|') != NULL ? 0 : -1;
    }
    line += machine + 1;
    *choice = (struct kern_lt_choice){0};
    return strlen(line) == 2 * KEY_BYTES + 1 + 2 * ALGO_BYTES + 1 &&
                   hex_read(line, &choice->key, KEY_BYTES) && line[2 * KEY_BYTES] == '|' &&
                   hex_read(line + 2 * KEY_BYTES + 1, choice->algo, ALGO_BYTES) &&
                   line[2 * KEY_BYTES + 1 + 2 * ALGO_BYTES] == '\n'
               ? 1
               : -1;
}

/* Whole lines behind those that were read before. */
static void read_file(struct kern_lt_choices *choices)
{
    char line[LINE_BYTES];
    FILE *file = fopen(choices->path, "re");
    if (file == NULL || fseeko(file, (off_t)choices->read_bytes, SEEK_SET) != 0) {
        if (errno != ENOENT) {
            warn(choices, "the file of measured products", strerror(errno));
        }
        if (file != NULL) {
            fclose(file);
        }
        return;
    }
    while (fgets(line, sizeof line, file) != NULL) {
        struct kern_lt_choice choice;
        const int kind = parse(choices, line, &choice);
        choices->read_bytes += strlen(line);
        choices->line++;
        if (kind > 0) {
            put(choices, &choice);
        } else if (kind < 0) {
            char why[64];
            snprintf(why, sizeof why, "line %u is not understood and left out", choices->line);
            warn(choices, "the file of measured products", why);
        }
    }
    fclose(file);
}

int kern_lt_choices_begin(struct kern_lt_choices *choices)
{
    const int lock = choices->path != NULL ? open(choices->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600)
                                           : -1;
    int rc = 0;
    for (int i = 0; lock >= 0 && i < LOCK_TRIES; i++) {
        rc = flock(lock, LOCK_EX);
        if (rc == 0 || errno != EINTR) {
            break;
        }
    }
    if (lock >= 0 && rc == 0) {
        read_file(choices);
        return lock;
    }
    if (choices->path != NULL) {
        warn(choices, "other runs are not kept from the file of measured products",
             strerror(errno));
    }
    kern_lt_choices_end(lock);
    return -1;
}

void kern_lt_choices_end(int lock)
{
    if (lock >= 0) {
        (void)close(lock); /* and the lock with it */
    }
}

int kern_lt_choices_init(struct kern_lt_choices *choices, const char *path, const char *machine)
{
    *choices = (struct kern_lt_choices){0};
    choices->list = calloc(KERN_LT_CHOICES_MAX, sizeof *choices->list);
    choices->path = path != NULL ? strdup(path) : NULL;
    if (choices->list == NULL || (path != NULL && choices->path == NULL)) {
        kern_lt_choices_fini(choices);
        return core_err_set(-ENOMEM, "no memory for %d ways to compute products",
                            KERN_LT_CHOICES_MAX);
    }
    snprintf(choices->machine, sizeof choices->machine, "%s", machine);
    for (char *c = choices->machine; *c != '\0'; c++) {
        *c = *c == '|' || *c == '\n' ? ' ' : *c;
    }
    if (path != NULL) {
        kern_lt_choices_end(kern_lt_choices_begin(choices));
    }
    return 0;
}

void kern_lt_choices_fini(struct kern_lt_choices *choices)
{
    free(choices->list);
    free(choices->path);
    *choices = (struct kern_lt_choices){0};
}

void kern_lt_choices_add(struct kern_lt_choices *choices, const struct kern_lt_choice *choice)
{
    put(choices, choice);
    if (choices->path == NULL || choice->none) {
        return;
    }
    char key[2 * KEY_BYTES + 1];
    char algo[2 * ALGO_BYTES + 1];
    char line[LINE_BYTES];
    hex_write(key, &choice->key, KEY_BYTES);
    hex_write(algo, choice->algo, ALGO_BYTES);
    const int length = snprintf(line, sizeof line, "%s%s|%s|%s\n", mark, choices->machine, key,
                                algo);
    FILE *file = fopen(choices->path, "ae");
    if (file == NULL || fwrite(line, 1, (size_t)length, file) != (size_t)length) {
        warn(choices, "cannot add to the file of measured products", strerror(errno));
    }
    if (file != NULL && fclose(file) != 0) {
        warn(choices, "cannot add to the file of measured products", strerror(errno));
    }
}
