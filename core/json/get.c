/* get.c: typed members of an object. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/utf8.h"
#include "core/json/json.h"
#include "core/json/write.h"

const char *core_json_kind_name(enum core_json_kind kind)
{
    static const char *const names[] = {
        [CORE_JSON_NULL] = "null",          [CORE_JSON_BOOL] = "true or false",
        [CORE_JSON_INTEGER] = "an integer", [CORE_JSON_REAL] = "a number",
        [CORE_JSON_STRING] = "a string",    [CORE_JSON_ARRAY] = "an array",
        [CORE_JSON_OBJECT] = "an object",
    };
    return names[kind];
}

bool core_json_as_integer(const struct core_json_value *value, int64_t *out)
{
    enum core_json_kind kind = core_json_kind(value);
    if (kind == CORE_JSON_INTEGER) {
        *out = core_json_integer(value);
        return true;
    }
    double real = kind == CORE_JSON_REAL ? core_json_real(value) : 0.5;
    if (real != floor(real) || real <= -0x1p63 || real >= 0x1p63) {
        return false;
    }
    *out = (int64_t)real;
    return true;
}

/* Returns -ENOENT, with a message, if the member is missing or null. */
static int find(const struct core_json *doc, const struct core_json_value *object, const char *key,
                enum core_json_kind wanted, const struct core_json_value **out)
{
    const struct core_json_value *value = core_json_find(object, key);
    if (value == NULL || core_json_kind(value) == CORE_JSON_NULL) {
        return core_json_refuse(doc, object, key, 0, -ENOENT, "%s; expected %s",
                                value == NULL ? "missing" : "found null",
                                core_json_kind_name(wanted));
    }
    *out = value;
    return 0;
}

static int refuse_kind(const struct core_json *doc, const struct core_json_value *object,
                       const char *key, enum core_json_kind wanted)
{
    char found[80];
    core_json_print(core_json_find(object, key), found, sizeof found);
    return core_json_refuse(doc, object, key, 0, -EINVAL, "found %s; expected %s", found,
                            core_json_kind_name(wanted));
}

int core_json_get(const struct core_json *doc, const struct core_json_value *object,
                  const char *key, enum core_json_kind kind, const struct core_json_value **out)
{
    const struct core_json_value *value = NULL;
    int rc = find(doc, object, key, kind, &value);
    if (rc == 0 && core_json_kind(value) != kind) {
        rc = refuse_kind(doc, object, key, kind);
    }
    if (rc == 0) {
        *out = value;
    }
    return rc;
}

int core_json_get_bool(const struct core_json *doc, const struct core_json_value *object,
                       const char *key, bool *out)
{
    const struct core_json_value *value = NULL;
    int rc = core_json_get(doc, object, key, CORE_JSON_BOOL, &value);
    if (rc == 0) {
        *out = core_json_bool(value);
    }
    return rc;
}

int core_json_get_integer(const struct core_json *doc, const struct core_json_value *object,
                          const char *key, int64_t *out)
{
    const struct core_json_value *value = NULL;
    int rc = find(doc, object, key, CORE_JSON_INTEGER, &value);
    if (rc == 0 && !core_json_as_integer(value, out)) {
        rc = refuse_kind(doc, object, key, CORE_JSON_INTEGER);
    }
    return rc;
}

int core_json_get_real(const struct core_json *doc, const struct core_json_value *object,
                       const char *key, double *out)
{
    const struct core_json_value *value = NULL;
    int rc = find(doc, object, key, CORE_JSON_REAL, &value);
    if (rc != 0) {
        return rc;
    }
    enum core_json_kind kind = core_json_kind(value);
    if (kind != CORE_JSON_INTEGER && kind != CORE_JSON_REAL) {
        return refuse_kind(doc, object, key, CORE_JSON_REAL);
    }
    *out = core_json_real(value);
    return 0;
}

int core_json_get_string(const struct core_json *doc, const struct core_json_value *object,
                         const char *key, const char **out)
{
    const struct core_json_value *value = NULL;
    int rc = core_json_get(doc, object, key, CORE_JSON_STRING, &value);
    if (rc != 0) {
        return rc;
    }
    size_t bytes = 0;
    const char *text = core_json_string(value, &bytes);
    if (strlen(text) != bytes) {
        return core_json_refuse(doc, object, key, 0, -EINVAL,
                                "the string holds a NUL character, which no name or path can");
    }
    *out = text;
    return 0;
}

void core_json_print(const struct core_json_value *value, char *out, size_t bytes)
{
    struct core_json_write write;
    core_json_write_init_text(&write);
    write.nan_is_null = true;
    write.bytes_max = bytes + 8;
    core_json_write_value(&write, NULL, value);
    snprintf(out, bytes, "%s", write.text != NULL ? write.text : "?");
    if (write.text != NULL && strlen(write.text) >= bytes) {
        core_utf8_mark_cut(out, bytes);
    }
    core_json_write_fini(&write);
}
