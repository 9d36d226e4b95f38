/* records.c: finds the file and row that come next. */
#include "tools/text/data/records.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/hash.h"
#include "tools/text/data/array.h"
#include "tools/text/data/lines.h"
#include "tools/text/data/shuffle.h"

struct file {
    char *path;               /* owned */
    struct text_lines *lines; /* owned; NULL: closed for now */
    uint64_t bytes;
    uint64_t asked; /* value of the counter at its last use */
    bool array;
    bool stays; /* cannot be reopened, so it stays open */
};

struct text_records {
    struct file *files; /* owned */
    uint64_t *before;   /* owned: blocks before each file; last: all blocks */
    size_t count;
    size_t room;
    size_t open; /* open files that could be closed */
    uint64_t asked;
    struct text_records_options options; /* `paths` is not kept */
    uint64_t epoch;
    struct text_place place;
    /* owned: the shuffled rows of the window as file << OFFSET_BITS | offset */
    uint64_t *window;
    size_t window_count;
    size_t window_room;
    uint64_t window_index; /* UINT64_MAX: none */
    uint64_t window_epoch;
};

/* Limits files to 64 TiB and leaves enough bits for TEXT_FILES_MAX. */
enum { OFFSET_BITS = 46 };
enum { OPEN_MAX = 16 }; /* files that can be reopened */

static void close_file(struct text_records *records, struct file *file)
{
    if (file->lines != NULL && !file->stays) {
        text_lines_close(file->lines);
        file->lines = NULL;
        records->open--;
    }
}

/* Closes the least recently used file if OPEN_MAX are open. */
static void make_room(struct text_records *records)
{
    struct file *oldest = NULL;
    for (size_t i = 0; i < records->count && records->open >= OPEN_MAX; i++) {
        struct file *file = &records->files[i];
        if (file->lines != NULL && !file->stays &&
            (oldest == NULL || file->asked < oldest->asked)) {
            oldest = file;
        }
    }
    if (oldest != NULL) {
        close_file(records, oldest);
    }
}

/* Reopens the file if necessary. */
static int take_file(struct text_records *records, size_t index, struct text_lines **out)
{
    struct file *file = &records->files[index];
    if (file->lines == NULL) {
        make_room(records);
        int rc = text_lines_open(file->path, records->options.input, records->options.row_bytes,
                                 &file->lines);
        if (rc != 0) {
            return rc;
        }
        records->open++;
        if (text_lines_bytes(file->lines) != file->bytes) {
            return core_err_set(-EIO, "%s has changed while it was being read", file->path);
        }
    }
    file->asked = ++records->asked;
    *out = file->lines;
    return 0;
}

static int add_file(struct text_records *records, const char *path)
{
    if (records->count == TEXT_FILES_MAX) {
        return core_err_set(-E2BIG, "there are more than %d data files", TEXT_FILES_MAX);
    }
    int rc = array_reserve("data files", &records->files, &records->room, records->count + 1,
                           sizeof *records->files);
    if (rc != 0) {
        return rc;
    }
    struct text_lines *lines = NULL;
    make_room(records);
    rc = text_lines_open(path, records->options.input, records->options.row_bytes, &lines);
    if (rc != 0) {
        return rc;
    }
    struct file *file = &records->files[records->count++];
    *file = (struct file){.path = core_charge_text(path, SIZE_MAX), .lines = lines, .stays = true};
    if (file->path == NULL) {
        return core_err_set(-ENOMEM, "no memory to read %s", path);
    }
    if (records->options.again || records->options.shuffle) {
        rc = text_lines_spool(lines, records->options.shuffle);
    }
    file->bytes = text_lines_bytes(lines);
    file->array = text_lines_array(lines);
    file->stays = !text_lines_reopens(lines);
    records->open += !file->stays;
    return rc;
}

/* An existing path is not a pattern. */
static int add_path(struct text_records *records, const char *path)
{
    FILE *file = strpbrk(path, "*?[") != NULL ? fopen(path, "rbe") : NULL;
    if (strpbrk(path, "*?[") == NULL || file != NULL) {
        if (file != NULL) {
            fclose(file);
        }
        return add_file(records, path);
    }
    glob_t found;
    const int result = glob(path, 0, NULL, &found);
    if (result == GLOB_NOMATCH) {
        return core_err_set(-ENOENT, "%s: no file matches this pattern", path);
    }
    if (result != 0) {
        return core_err_set(result == GLOB_NOSPACE ? -ENOMEM : -EIO,
                            "%s: cannot list the files that match this pattern", path);
    }
    int rc = 0;
    for (size_t i = 0; i < found.gl_pathc && rc == 0; i++) {
        rc = add_file(records, found.gl_pathv[i]);
    }
    globfree(&found);
    return rc;
}

static int count_blocks(struct text_records *records)
{
    records->before = core_charge_zeroed(records->count + 1, sizeof *records->before);
    if (records->before == NULL) {
        return core_err_set(-ENOMEM, "no memory for the sizes of %zu files", records->count);
    }
    for (size_t i = 0; i < records->count; i++) {
        const uint64_t bytes = records->files[i].bytes;
        if (bytes >> OFFSET_BITS != 0) {
            return core_err_set(-E2BIG, "%s is too large to be shuffled",
                                text_records_file(records, i));
        }
        records->before[i + 1] = records->before[i] +
                                 (bytes + TEXT_BLOCK_BYTES - 1) / TEXT_BLOCK_BYTES;
    }
    return 0;
}

int text_records_open(const struct text_records_options *options, struct text_records **out)
{
    struct text_records *records = core_charge_zeroed(1, sizeof *records);
    if (records == NULL) {
        return core_err_set(-ENOMEM, "no memory to read data");
    }
    records->options = *options;
    if (records->options.row_bytes == 0) {
        records->options.row_bytes = TEXT_ROW_BYTES_MAX;
    }
    records->window_index = UINT64_MAX;
    int rc = 0;
    for (size_t i = 0; i < options->paths_count; i++) {
        rc = add_path(records, options->paths[i]);
        if (rc != 0) {
            goto fail;
        }
    }
    if (records->count == 0) {
        rc = core_err_set(-ENOENT, "no data file was given");
        goto fail;
    }
    if (options->shuffle && (rc = count_blocks(records)) != 0) {
        goto fail;
    }
    *out = records;
    return 0;
fail:
    text_records_close(records);
    return rc;
}

void text_records_close(struct text_records *records)
{
    if (records == NULL) {
        return;
    }
    for (size_t i = 0; i < records->count; i++) {
        text_lines_close(records->files[i].lines);
        core_charge_free(records->files[i].path);
    }
    core_charge_free(records->files);
    core_charge_free(records->before);
    core_charge_free(records->window);
    core_charge_free(records);
}

const char *text_records_file(const struct text_records *records, size_t file)
{
    return text_records_called(records->files[file].path);
}

const char *text_records_called(const char *path)
{
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

bool text_records_means(const char *name, const char *path)
{
    glob_t found;
    bool means = core_file_is_same(strcmp(name, "-") == 0 ? "/dev/stdin" : name, path);
    if (!means && strpbrk(name, "*?[") != NULL && glob(name, 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc && !means; i++) {
            means = core_file_is_same(found.gl_pathv[i], path);
        }
        globfree(&found);
    }
    return means;
}

uint64_t text_records_mark(const struct text_records *records)
{
    uint64_t mark = core_hash_seed(records->count, records->options.shuffle,
                                   records->options.shuffle ? records->options.seed : 0, 0);
    for (size_t i = 0; i < records->count; i++) {
        const char *name = text_records_file(records, i);
        const char *slash = strrchr(name, '/'); /* the folder may be moved */
        name = slash != NULL ? slash + 1 : name;
        const uint64_t bytes = records->files[i].bytes;
        mark = core_hash(name, strlen(name), core_hash_seed(mark, bytes, 0, 0));
    }
    return mark;
}

static int seek_file(struct text_records *records)
{
    const struct text_place *place = &records->place;
    struct text_lines *lines = NULL;
    int rc = place->file < records->count ? take_file(records, place->file, &lines) : 0;
    return lines != NULL ? text_lines_seek(lines, place->offset, place->row) : rc;
}

int text_records_seek(struct text_records *records, uint64_t epoch, struct text_place place)
{
    records->epoch = epoch;
    records->place = place;
    return records->options.shuffle ? 0 : seek_file(records);
}

struct text_place text_records_place(const struct text_records *records)
{
    return records->place;
}

static int next_in_order(struct text_records *records, struct text_record *out)
{
    struct text_line line;
    struct text_place *place = &records->place;
    while (place->file < records->count) {
        struct text_lines *lines = NULL;
        int rc = take_file(records, place->file, &lines);
        if (rc != 0 || (rc = text_lines_next(lines, &line)) < 0) {
            return rc;
        }
        if (rc == 1) {
            place->offset = text_lines_offset(lines);
            place->row = line.row;
            *out = (struct text_record){.text = line.text,
                                        .bytes = line.bytes,
                                        .file = (uint32_t)place->file,
                                        .offset = line.offset,
                                        .row = line.row};
            return 1;
        }
        text_lines_trim(lines);
        close_file(records, &records->files[place->file]);
        *place = (struct text_place){.file = place->file + 1};
        rc = seek_file(records);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int add_row(struct text_records *records, uint64_t file, uint64_t offset)
{
    int rc = array_reserve("rows to shuffle", &records->window, &records->window_room,
                           records->window_count + 1, sizeof *records->window);
    if (rc == 0) {
        records->window[records->window_count++] = file << OFFSET_BITS | offset;
    }
    return rc;
}

static int add_block(struct text_records *records, uint64_t block)
{
    size_t low = 0;
    size_t high = records->count;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        *(records->before[middle] <= block ? &low : &high) = middle;
    }
    struct text_lines *lines = NULL;
    const uint64_t begin = (block - records->before[low]) * TEXT_BLOCK_BYTES;
    int rc = take_file(records, low, &lines);
    if (rc != 0 || (rc = text_lines_seek_near(lines, begin)) != 0) {
        return rc;
    }
    while (text_lines_offset(lines) < begin + TEXT_BLOCK_BYTES) {
        struct text_line line;
        rc = text_lines_next(lines, &line);
        if (rc != 1) {
            return rc;
        }
        if (line.offset < begin + TEXT_BLOCK_BYTES &&
            (rc = add_row(records, low, line.offset)) != 0) {
            return rc;
        }
    }
    return 0;
}

static int load_window(struct text_records *records, uint64_t index)
{
    const struct text_records_options *options = &records->options;
    const uint64_t blocks = records->before[records->count];
    records->window_count = 0;
    records->window_index = UINT64_MAX;
    for (uint64_t i = 0; i < TEXT_WINDOW_BLOCKS; i++) {
        const uint64_t at = index * TEXT_WINDOW_BLOCKS + i;
        if (at >= blocks) {
            break;
        }
        int rc = add_block(records, text_shuffle_at(options->seed, records->epoch, blocks, at));
        if (rc != 0) {
            return rc;
        }
    }
    text_shuffle_mix(options->seed, records->epoch, index, records->window, records->window_count);
    records->window_index = index;
    records->window_epoch = records->epoch;
    return 0;
}

/* Gets the next shuffled row; the place is (index of the window, index in it). */
static int next_in_window(struct text_records *records, struct text_record *out)
{
    struct text_place *place = &records->place;
    const uint64_t blocks = records->before[records->count];
    while (place->file * TEXT_WINDOW_BLOCKS < blocks) {
        if (records->window_index != place->file || records->window_epoch != records->epoch) {
            int rc = load_window(records, place->file);
            if (rc != 0) {
                return rc;
            }
        }
        if (place->row >= records->window_count) {
            *place = (struct text_place){.file = place->file + 1};
            continue;
        }
        const uint64_t row = records->window[place->row];
        const size_t file = (size_t)(row >> OFFSET_BITS);
        struct text_line line;
        struct text_lines *lines = NULL;
        const uint64_t offset = row & ((UINT64_C(1) << OFFSET_BITS) - 1);
        int rc = take_file(records, file, &lines);
        if (rc != 0 || (rc = text_lines_seek(lines, offset, 0)) != 0 ||
            (rc = text_lines_next(lines, &line)) < 0) {
            return rc;
        }
        if (rc == 0) {
            return core_err_set(-EIO, "%s became shorter while it was being read",
                                text_records_file(records, file));
        }
        place->row++;
        *out = (struct text_record){
            .text = line.text, .bytes = line.bytes, .file = (uint32_t)file, .offset = line.offset};
        return 1;
    }
    return 0;
}

int text_records_next(struct text_records *records, struct text_record *out)
{
    return records->options.shuffle ? next_in_window(records, out) : next_in_order(records, out);
}

double text_records_part(const struct text_records *records)
{
    uint64_t all = 0;
    uint64_t used = 0;
    const struct text_place *place = &records->place;
    if (records->options.shuffle) {
        all = (records->before[records->count] + TEXT_WINDOW_BLOCKS - 1) / TEXT_WINDOW_BLOCKS;
        return all > 0 ? (double)place->file / (double)all : 1;
    }
    for (size_t i = 0; i < records->count; i++) {
        const struct file *file = &records->files[i];
        if (file->bytes == 0 && file->stays) {
            return -1;
        }
        all += file->bytes;
        used += i < place->file ? file->bytes : 0;
        used += i == place->file && file->lines != NULL ? text_lines_used(file->lines) : 0;
    }
    return all > 0 ? (double)used / (double)all : 1;
}

const char *text_records_name(struct text_records *records, const struct text_record *record,
                              char out[TEXT_NAME_BYTES])
{
    uint64_t row = record->row;
    struct text_lines *lines = NULL;
    if (row == 0 && take_file(records, record->file, &lines) == 0 &&
        text_lines_count(lines, record->offset, &row) == 0) {
        row++; /* seeking sets the file's position anyway */
    }
    snprintf(out, TEXT_NAME_BYTES, "%.400s:%s%llu", text_records_file(records, record->file),
             records->files[record->file].array ? " row " : "", (unsigned long long)row);
    return out;
}
