/* lines.c: a growing buffer over a source, and the rows in it. */
#include "tools/text/data/lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "tools/text/data/source.h"

enum { READ_BYTES_MIN = 1 << 12, READ_BYTES_MAX = 1 << 20 };

struct text_lines {
    struct text_source *source; /* owned */
    char *text;                 /* owned: unread bytes are at [begin, end) */
    size_t begin;
    size_t end;
    size_t room;
    size_t room_max;
    size_t read_bytes;
    uint64_t offset;   /* offset in the file of text[begin] */
    uint64_t row;      /* number of rows before text[begin] */
    size_t mark_bytes; /* of the byte order mark */
    bool array;        /* the file is an array */
    bool spooled;      /* the array has been converted to lines */
    bool closed;       /* the end of the array was read */
    struct {           /* lines counted so far */
        uint64_t offset;
        uint64_t rows;
    } counted;
};

void text_lines_close(struct text_lines *lines)
{
    if (lines != NULL) {
        text_source_close(lines->source);
        core_charge_free(lines->text);
        core_charge_free(lines);
    }
}

bool text_lines_array(const struct text_lines *lines)
{
    return lines->array;
}

uint64_t text_lines_bytes(const struct text_lines *lines)
{
    return text_source_bytes(lines->source);
}

uint64_t text_lines_used(const struct text_lines *lines)
{
    const uint64_t used = text_source_used(lines->source);
    const uint64_t here = lines->end - lines->begin; /* decompressed but not used */
    return used > here ? used - here : 0;
}

bool text_lines_reopens(const struct text_lines *lines)
{
    return text_source_reopens(lines->source);
}

uint64_t text_lines_offset(const struct text_lines *lines)
{
    return lines->offset;
}

static int refuse(const struct text_lines *lines, const char *what)
{
    const bool array = lines->array;
    return core_err_set(-EINVAL, "%s:%s%llu: %s", text_source_name(lines->source),
                        array ? " row " : "", (unsigned long long)lines->row + 1, what);
}

/* Keeps the buffer if memory is short. */
static void grow(struct text_lines *lines)
{
    size_t room = lines->room == 0 ? READ_BYTES_MIN : lines->room * 2;
    room = room < lines->room_max ? room : lines->room_max;
    char *more = room > lines->room ? core_charge_grow(lines->text, room) : NULL;
    if (more != NULL) {
        lines->text = more;
        lines->room = room;
    }
}

enum { ENDED, MORE, FULL };

/* Returns MORE, ENDED at the end of the file, FULL if the buffer is full, or -errno. */
static int fill(struct text_lines *lines)
{
    if (lines->begin > 0) {
        memmove(lines->text, lines->text + lines->begin, lines->end - lines->begin);
        lines->end -= lines->begin;
        lines->begin = 0;
    }
    for (size_t before = SIZE_MAX;
         before != lines->room && lines->room - lines->end < lines->read_bytes;) {
        before = lines->room;
        grow(lines);
    }
    if (lines->room == 0) {
        return core_err_set(-ENOMEM, "no memory to read %s", text_source_name(lines->source));
    }
    if (lines->room == lines->end) {
        return FULL;
    }
    const size_t left = lines->room - lines->end;
    size_t got = 0;
    int rc = text_source_read(lines->source, lines->text + lines->end,
                              left < lines->read_bytes ? left : lines->read_bytes, &got);
    lines->end += got;
    if (lines->read_bytes < READ_BYTES_MAX) {
        lines->read_bytes *= 2;
    }
    return rc != 0 ? rc : got > 0 ? MORE : ENDED;
}

static void advance(struct text_lines *lines, size_t bytes)
{
    lines->begin += bytes;
    lines->offset += bytes;
}

struct reach {
    uint64_t gone; /* dropped because the buffer was full */
    size_t bytes;  /* in the buffer */
    bool ended;    /* a newline follows */
};

static void discard(struct text_lines *lines, struct reach *reach)
{
    const size_t there = lines->end - lines->begin;
    reach->gone += there;
    advance(lines, there);
}

/* Returns 1; 0 at the end of the file; -errno. */
static int find_line(struct text_lines *lines, struct reach *out)
{
    size_t seen = 0; /* bytes of the buffer already searched */
    *out = (struct reach){.gone = 0};
    for (;;) {
        const size_t there = lines->end - lines->begin;
        const char *begin = there > 0 ? lines->text + lines->begin : NULL;
        const char *end = there > seen ? memchr(begin + seen, '\n', there - seen) : NULL;
        int more = MORE;
        if (end == NULL) {
            seen = there;
            more = fill(lines);
        }
        if (more == FULL) {
            discard(lines, out);
            seen = 0;
        } else if (more < 0 || (more == ENDED && there == 0 && out->gone == 0)) {
            return more;
        } else if (end != NULL || more == ENDED) {
            out->ended = end != NULL;
            out->bytes = end != NULL ? (size_t)(end - begin) : there;
            return 1;
        }
    }
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static bool is_blank(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (!is_space(text[i])) {
            return false;
        }
    }
    return true;
}

/* Takes the row from `offset` to its end in the buffer, and drops `trailing` bytes after it. */
static void take_row(struct text_lines *lines, uint64_t offset, const struct reach *reach,
                     size_t trailing, struct text_line *out)
{
    *out = (struct text_line){.text = reach->gone == 0 ? lines->text + lines->begin : NULL,
                              .bytes = reach->gone + reach->bytes,
                              .offset = offset,
                              .row = ++lines->row};
    advance(lines, reach->bytes + trailing);
}

static int next_line(struct text_lines *lines, struct text_line *out)
{
    struct reach reach;
    struct text_line line;
    do {
        const uint64_t offset = lines->offset;
        int rc = find_line(lines, &reach);
        if (rc != 1) {
            return rc;
        }
        take_row(lines, offset, &reach, reach.ended, &line);
    } while (line.text != NULL && is_blank(line.text, (size_t)line.bytes));
    *out = line;
    return 1;
}

/* Writes the byte `at` bytes ahead, or -1 at the end of the file. Returns FULL if the buffer is too
 * small. */
static int byte_at(struct text_lines *lines, size_t at, int *byte)
{
    while (lines->end - lines->begin <= at) {
        int more = fill(lines);
        if (more != MORE) {
            *byte = -1;
            return more;
        }
    }
    *byte = (unsigned char)lines->text[lines->begin + at];
    return 0;
}

static int pass_space(struct text_lines *lines, int *byte)
{
    int rc;
    while ((rc = byte_at(lines, 0, byte)) == 0 && *byte >= 0 && is_space((char)*byte)) {
        advance(lines, 1);
    }
    return rc;
}

/* Drops earlier bytes of the value if the buffer is full. */
static int value_byte(struct text_lines *lines, size_t *at, struct reach *reach, int *byte)
{
    int rc = byte_at(lines, *at, byte);
    while (rc == FULL) {
        *at -= lines->end - lines->begin;
        discard(lines, reach);
        rc = byte_at(lines, *at, byte);
    }
    return rc != 0 || *byte >= 0 ? rc : refuse(lines, "the file ends inside the row");
}

/* Finds the end of a value by its brackets and quotes. Refuses what leaves no end to find; the
 * parser reports other errors. */
static int measure_value(struct text_lines *lines, struct reach *out)
{
    size_t depth = 0;
    bool quoted = false;
    *out = (struct reach){.gone = 0};
    for (size_t at = 0;; at++) {
        int byte;
        int rc = value_byte(lines, &at, out, &byte);
        if (rc != 0) {
            return rc;
        }
        if (quoted) {
            if (byte < 0x20) {
                return refuse(lines, "a string contains a control character");
            }
            at += byte == '\\';
            quoted = byte != '"';
            if (quoted || depth > 0) {
                continue;
            }
            out->bytes = at + 1;
            return 0;
        }
        const bool closes = byte == ']' || byte == '}';
        if (depth == 0 && (closes || byte == ',' || is_space((char)byte))) {
            out->bytes = at;
            return at + out->gone > 0 ? 0 : refuse(lines, "a row was expected");
        }
        quoted = byte == '"';
        depth += byte == '[' || byte == '{';
        depth -= closes;
        if (closes && depth == 0) {
            out->bytes = at + 1;
            return 0;
        }
    }
}

/* Returns 1; 0 after the last element; -errno. */
static int pass_comma(struct text_lines *lines)
{
    int byte;
    const bool first = lines->offset <= lines->mark_bytes;
    int rc = pass_space(lines, &byte);
    const bool opens = rc == 0 && first && byte == '[';
    if (opens || (rc == 0 && !first && byte == ',')) {
        advance(lines, 1);
        rc = pass_space(lines, &byte);
        if (rc != 0 || byte != ']' || !opens) {
            return rc != 0 ? rc : 1;
        }
    }
    if (rc != 0 || byte != ']') {
        return rc != 0 ? rc : refuse(lines, "expected a comma or the end of the array");
    }
    advance(lines, 1);
    lines->closed = true;
    rc = pass_space(lines, &byte);
    return rc != 0 || byte < 0 ? rc : refuse(lines, "there is data after the array");
}

static int next_element(struct text_lines *lines, struct text_line *out)
{
    struct reach reach;
    int rc = lines->closed ? 0 : pass_comma(lines);
    if (rc != 1) {
        return rc;
    }
    const uint64_t offset = lines->offset;
    rc = measure_value(lines, &reach);
    if (rc != 0) {
        return rc;
    }
    take_row(lines, offset, &reach, 0, out);
    return 1;
}

int text_lines_next(struct text_lines *lines, struct text_line *out)
{
    return lines->array && !lines->spooled ? next_element(lines, out) : next_line(lines, out);
}

int text_lines_seek(struct text_lines *lines, uint64_t offset, uint64_t row)
{
    offset = offset < lines->mark_bytes ? lines->mark_bytes : offset;
    const uint64_t there = lines->end - lines->begin;
    int rc = 0;
    if (offset >= lines->offset && offset - lines->offset <= there) { /* it is in the buffer */
        lines->begin += (size_t)(offset - lines->offset);
    } else {
        rc = text_source_seek(lines->source, offset);
        lines->begin = lines->end = 0;
        lines->read_bytes = READ_BYTES_MIN;
    }
    lines->offset = rc == 0 ? offset : lines->offset;
    lines->closed = false;
    lines->row = row;
    return rc;
}

void text_lines_trim(struct text_lines *lines)
{
    core_charge_free(lines->text);
    lines->text = NULL;
    lines->begin = lines->end = lines->room = 0;
    lines->offset = UINT64_MAX; /* forces the next seek to go to the source */
    lines->read_bytes = READ_BYTES_MIN;
}

int text_lines_seek_near(struct text_lines *lines, uint64_t offset)
{
    struct reach reach = {.gone = 0};
    int rc = text_lines_seek(lines, offset > 0 ? offset - 1 : 0, 0);
    if (rc == 0 && offset > 0) {
        rc = find_line(lines, &reach);
        advance(lines, rc == 1 ? reach.bytes + reach.ended : 0);
    }
    return rc < 0 ? rc : 0;
}

int text_lines_count(struct text_lines *lines, uint64_t offset, uint64_t *rows)
{
    if (offset < lines->counted.offset) {
        lines->counted.offset = lines->counted.rows = 0;
    }
    int rc = text_lines_seek(lines, lines->counted.offset, lines->counted.rows);
    if (rc != 0) {
        return rc;
    }
    while (lines->offset < offset) {
        struct reach reach;
        rc = find_line(lines, &reach);
        if (rc != 1) {
            return rc;
        }
        advance(lines, reach.bytes + reach.ended);
        lines->row++;
    }
    lines->counted.offset = lines->offset;
    lines->counted.rows = *rows = lines->row;
    return 0;
}

struct spool {
    struct text_lines *lines; /* borrowed */
    bool ends;                /* a newline comes next */
};

static int element_piece(void *user, const char **piece, size_t *bytes)
{
    struct spool *spool = user;
    struct text_line line;
    spool->ends = !spool->ends;
    if (!spool->ends) {
        *piece = "\n";
        *bytes = 1;
        return 1;
    }
    int rc = next_element(spool->lines, &line);
    if (rc != 1) {
        return rc;
    }
    if (line.text == NULL) {
        return core_err_set(-E2BIG,
                            "%s: row %llu has %llu bytes, too many for an array that is shuffled; "
                            "raise --data-memory",
                            text_source_name(spool->lines->source), (unsigned long long)line.row,
                            (unsigned long long)line.bytes);
    }
    char *text = spool->lines->text + spool->lines->begin - line.bytes;
    for (size_t i = 0; i < line.bytes; i++) {
        text[i] = is_space(text[i]) ? ' ' : text[i];
    }
    *piece = text;
    *bytes = (size_t)line.bytes;
    return 1;
}

static int raw_piece(void *user, const char **piece, size_t *bytes)
{
    struct text_lines *lines = ((struct spool *)user)->lines;
    int more = lines->end == lines->begin ? fill(lines) : MORE;
    *piece = lines->text + lines->begin;
    *bytes = lines->end - lines->begin;
    advance(lines, *bytes);
    return more;
}

int text_lines_spool(struct text_lines *lines, bool lines_only)
{
    const bool flattens = lines_only && lines->array && !lines->spooled;
    if (!flattens &&
        (text_source_random(lines->source) || (!lines_only && text_source_seeks(lines->source)))) {
        return 0;
    }
    struct spool spool = {.lines = lines};
    int rc = text_lines_seek(lines, 0, 0);
    if (rc == 0) {
        rc = text_source_spool(lines->source, flattens ? element_piece : raw_piece, &spool);
    }
    if (rc == 0) {
        lines->spooled |= flattens;
        lines->mark_bytes = flattens ? 0 : lines->mark_bytes;
        lines->begin = lines->end = 0;
        lines->offset = lines->row = 0;
        rc = text_lines_seek(lines, 0, 0);
    }
    return rc;
}

/* Excel, Python and PowerShell's > operator may write other encodings. */
static int refuse_encoding(const struct text_lines *lines)
{
    static const struct {
        const char *bytes;
        size_t count;
        const char *encoding;
    } marks[] = {
        {"\xFF\xFE\0\0", 4, "UTF-32"}, {"\0\0\xFE\xFF", 4, "UTF-32"}, {"\xFF\xFE", 2, "UTF-16"},
        {"\xFE\xFF", 2, "UTF-16"},     {"{\0\0\0", 4, "UTF-32LE"},    {"[\0\0\0", 4, "UTF-32LE"},
        {"\0\0\0{", 4, "UTF-32BE"},    {"\0\0\0[", 4, "UTF-32BE"},    {"{\0", 2, "UTF-16LE"},
        {"[\0", 2, "UTF-16LE"},        {"\0{", 2, "UTF-16BE"},        {"\0[", 2, "UTF-16BE"}};
    const char *name = text_source_name(lines->source);
    const size_t there = lines->end - lines->begin;
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        if (there >= marks[i].count &&
            memcmp(lines->text + lines->begin, marks[i].bytes, marks[i].count) == 0) {
            return core_err_set(
                -EINVAL, "%s is %s, but tide reads UTF-8: iconv -f %s -t UTF-8 %s > utf8.jsonl",
                name, marks[i].encoding, marks[i].encoding, name);
        }
    }
    return 0;
}

static int detect_format(struct text_lines *lines)
{
    static const char mark[] = "\xEF\xBB\xBF";
    int byte;
    int rc = byte_at(lines, 3, &byte);
    if (rc != 0 || (rc = refuse_encoding(lines)) != 0 || (rc = byte_at(lines, 2, &byte)) != 0) {
        return rc;
    }
    if (byte >= 0 && memcmp(lines->text + lines->begin, mark, 3) == 0) {
        lines->mark_bytes = 3;
    }
    size_t at = lines->mark_bytes;
    while ((rc = byte_at(lines, at, &byte)) == 0 && byte >= 0 && is_space((char)byte)) {
        at++;
    }
    if (rc != 0) {
        return rc;
    }
    lines->array = byte == '[';
    return text_lines_seek(lines, 0, 0);
}

int text_lines_open(const char *path, int input, size_t row_bytes, struct text_lines **out)
{
    struct text_lines *lines = core_charge_zeroed(1, sizeof *lines);
    if (lines == NULL) {
        return core_err_set(-ENOMEM, "no memory to read %s", path);
    }
    lines->read_bytes = READ_BYTES_MIN;
    lines->room_max = row_bytes > READ_BYTES_MIN ? row_bytes : READ_BYTES_MIN;
    int rc = text_source_open(path, input, &lines->source);
    if (rc != 0 || (rc = detect_format(lines)) != 0) {
        text_lines_close(lines);
        return rc;
    }
    *out = lines;
    return 0;
}
