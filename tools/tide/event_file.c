/* event_file.c: TFRecord framing, and protobuf as scalar events need it. */
#include "tools/tide/event_file.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"

/* Field numbers of TensorBoard's event.proto and summary.proto. */
enum {
    EVENT_WALL_TIME = 1,
    EVENT_STEP = 2,
    EVENT_FILE_VERSION = 3,
    EVENT_SUMMARY = 5,
    EVENT_RUN_STATE = 7,
    RUN_STATE_STATUS = 1,
    RUN_STATE_START = 1,
    SUMMARY_VALUE = 1,
    VALUE_TAG = 1,
    VALUE_SIMPLE = 2,
};
enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

enum {
    VALUE_BYTES_MAX = EVENT_TAG_BYTES_MAX + 24, /* with the float and field headers */
    VALUES_BYTES = EVENT_VALUES_MAX * VALUE_BYTES_MAX,
    FRAME_BYTES = 12,
};

struct text {
    unsigned char *bytes; /* borrowed */
    size_t count, room;
};

struct event_file {
    FILE *stream; /* owned; NULL after a failure */
    char path[PATH_MAX];
    int rc;        /* the first failure */
    uint64_t step; /* step being written */
    struct text values;
    unsigned char room[VALUES_BYTES];
};

uint32_t event_file_crc(const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < count; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ (0x82F63B78U & (0U - (crc & 1U)));
        }
    }
    return ~crc;
}

static void append_bytes(struct text *text, const void *bytes, size_t count)
{
    assert(count <= text->room - text->count);
    memcpy(text->bytes + text->count, bytes, count);
    text->count += count;
}

static void put_little(struct text *text, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        append_bytes(text, &(unsigned char){(unsigned char)(value >> (8 * i))}, 1);
    }
}

static void put_varint(struct text *text, uint64_t value)
{
    for (; value > 0x7F; value >>= 7) {
        append_bytes(text, &(unsigned char){(unsigned char)(value | 0x80)}, 1);
    }
    append_bytes(text, &(unsigned char){(unsigned char)value}, 1);
}

static void put_key(struct text *text, unsigned field, unsigned wire)
{
    put_varint(text, field << 3 | wire);
}

static void put_bytes(struct text *text, unsigned field, const void *bytes, size_t count)
{
    put_key(text, field, WIRE_BYTES);
    put_varint(text, count);
    append_bytes(text, bytes, count);
}

/* TensorBoard masks checksums, because a checksum of data with checksums is weak. */
static uint32_t masked(const void *bytes, size_t count)
{
    uint32_t crc = event_file_crc(bytes, count);
    return (crc >> 15 | crc << 17) + 0xA282EAD8U;
}

static int note_write_error(struct event_file *file, int cause)
{
    file->rc = core_err_set(cause != 0 ? -cause : -EIO, "%s cannot be written: %s", file->path,
                            strerror(cause != 0 ? cause : EIO));
    fclose(file->stream);
    file->stream = NULL;
    return file->rc;
}

/* Writes length, checksum, bytes (time, step and a field), checksum. */
static int write_event(struct event_file *file, unsigned field, const void *bytes, size_t count)
{
    unsigned char room[VALUES_BYTES + 64];
    unsigned char frame[FRAME_BYTES];
    unsigned char end[4];
    struct text event = {.bytes = room, .room = sizeof room};
    struct text head = {.bytes = frame, .room = sizeof frame};
    struct text tail = {.bytes = end, .room = sizeof end};
    struct timespec now;
    if (file->stream == NULL) {
        return file->rc;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    const double wall = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
    uint64_t bits = 0;
    memcpy(&bits, &wall, sizeof bits);
    put_key(&event, EVENT_WALL_TIME, WIRE_FIXED64);
    put_little(&event, bits, 8);
    put_key(&event, EVENT_STEP, WIRE_VARINT);
    put_varint(&event, file->step);
    put_bytes(&event, field, bytes, count);
    put_little(&head, event.count, 8);
    put_little(&head, masked(frame, 8), 4);
    put_little(&tail, masked(room, event.count), 4);
    errno = 0;
    fwrite(frame, 1, head.count, file->stream);
    fwrite(room, 1, event.count, file->stream);
    fwrite(end, 1, tail.count, file->stream);
    return fflush(file->stream) != 0 || ferror(file->stream) ? note_write_error(file, errno) : 0;
}

static const char prefix[] = "events.out.tfevents.";

/* TensorBoard sorts files by name, which contains the second of creation. A run resumed within that
 * second must sort last. */
static int later_second(const char *folder, int64_t *second)
{
    DIR *list = opendir(folder);
    if (list == NULL) {
        return core_err_set(-errno, "%s cannot be read: %s", folder, strerror(errno));
    }
    *second = (int64_t)time(NULL);
    for (const struct dirent *entry; (entry = readdir(list)) != NULL;) {
        if (strncmp(entry->d_name, prefix, sizeof prefix - 1) == 0) {
            int64_t there = strtoll(entry->d_name + sizeof prefix - 1, NULL, 10);
            *second = there >= *second && there < INT64_MAX ? there + 1 : *second;
        }
    }
    closedir(list);
    return 0;
}

static int open_stream(struct event_file *file, const char *folder)
{
    char host[128] = "";
    int64_t second = 0;
    int rc = later_second(folder, &second);
    if (rc != 0) {
        return rc;
    }
    if (gethostname(host, sizeof host - 1) != 0 || host[0] == '\0') {
        memcpy(host, "here", sizeof "here");
    }
    int length = snprintf(file->path, sizeof file->path, "%s/%s%010" PRId64 ".%s.%ld", folder,
                          prefix, second, host, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof file->path) {
        return core_err_set(-ENAMETOOLONG, "%s: the path of an event file is too long: %d bytes",
                            folder, length);
    }
    int fd = open(file->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    file->stream = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (file->stream == NULL) {
        int cause = errno;
        if (fd >= 0) {
            close(fd);
        }
        return core_err_set(-cause, "%s cannot be written: %s", file->path, strerror(cause));
    }
    return 0;
}

int event_file_open(const char *folder, struct event_file **out)
{
    int rc = core_file_make_folders(folder, strlen(folder));
    if (rc != 0) {
        return rc;
    }
    struct event_file *file = calloc(1, sizeof *file);
    if (file == NULL) {
        return core_err_set(-ENOMEM, "no memory for an event file");
    }
    rc = open_stream(file, folder);
    if (rc != 0) {
        event_file_close(file);
        return rc;
    }
    *out = file;
    return 0;
}

int event_file_close(struct event_file *file)
{
    if (file == NULL) {
        return 0;
    }
    if (file->stream != NULL && fclose(file->stream) != 0) {
        file->rc = core_err_set(-errno, "%s cannot be written: %s", file->path, strerror(errno));
    }
    int rc = file->rc;
    free(file);
    return rc;
}

void event_file_discard(struct event_file *file)
{
    if (file != NULL) {
        (void)unlink(file->path);
        (void)event_file_close(file);
    }
}

int event_file_restart(struct event_file *file, uint64_t step)
{
    static const char version[] = "brain.Event:2";
    static const unsigned char start[] = {RUN_STATE_STATUS << 3 | WIRE_VARINT, RUN_STATE_START};
    int rc = write_event(file, EVENT_FILE_VERSION, version, sizeof version - 1);
    file->step = step;
    return rc != 0 ? rc : write_event(file, EVENT_RUN_STATE, start, sizeof start);
}

void event_file_begin(struct event_file *file, uint64_t step)
{
    file->step = step;
    file->values = (struct text){.bytes = file->room, .room = sizeof file->room};
}

void event_file_value(struct event_file *file, const char *tag, double value)
{
    unsigned char room[VALUE_BYTES_MAX];
    struct text one = {.bytes = room, .room = sizeof room};
    const float narrow = (float)value;
    uint32_t bits = 0;
    memcpy(&bits, &narrow, sizeof bits);
    put_bytes(&one, VALUE_TAG, tag, strlen(tag));
    put_key(&one, VALUE_SIMPLE, WIRE_FIXED32);
    put_little(&one, bits, 4);
    put_bytes(&file->values, SUMMARY_VALUE, room, one.count);
}

int event_file_end(struct event_file *file)
{
    return write_event(file, EVENT_SUMMARY, file->room, file->values.count);
}
