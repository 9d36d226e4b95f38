/* json_locate.c: finds where a member or element stands, by reading the text again while walking
 * the tree beside it: members keep the order of the file, so token n is value n. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/json.h"

struct walk {
    struct core_json_scan scan;
    const struct core_json_value *container;
    const char *key; /* NULL: `index` of an array */
    size_t index;
    const char *found;         /* the member or element; else NULL */
    const char *found_without; /* the container, where the walk has met it */
    size_t path_bytes;
    struct core_json_site *site;
};

static void path_cut(struct walk *walk, size_t bytes)
{
    walk->path_bytes = bytes;
    walk->site->path[bytes < sizeof walk->site->path ? bytes : sizeof walk->site->path - 1] = '\0';
}

/* Appends ".key" or "[index]"; what does not fit is counted and cut. */
static void path_add(struct walk *walk, const char *key, size_t index)
{
    char *path = walk->site->path;
    size_t room = sizeof walk->site->path;
    size_t at = walk->path_bytes < room ? walk->path_bytes : room - 1;
    int length = key != NULL ? snprintf(path + at, room - at, "%s%s", at > 0 ? "." : "", key)
                             : snprintf(path + at, room - at, "[%zu]", index);
    walk->path_bytes += length > 0 ? (size_t)length : 0;
}

static bool is_container(const struct core_json_value *value)
{
    enum core_json_kind kind = core_json_kind(value);
    return kind == CORE_JSON_OBJECT || kind == CORE_JSON_ARRAY;
}

static bool visit(struct walk *walk, const struct core_json_value *value, const char *begin);

/* One child, whose key has been passed already; true ends the walk. */
static bool visit_child(struct walk *walk, const struct core_json_value *value,
                        const struct core_json_value *child, const char *key, size_t index)
{
    struct core_json_token token;
    const char *key_text = walk->scan.text + walk->scan.at;
    if (key != NULL) {
        core_json_scan_next(&walk->scan, &token);
        key_text = token.text - 1;
    }
    core_json_scan_next(&walk->scan, &token);
    bool wanted = value == walk->container &&
                  (key != NULL ? walk->key != NULL && strcmp(key, walk->key) == 0
                               : walk->key == NULL && index == walk->index);
    size_t length = walk->path_bytes;
    path_add(walk, key, index);
    if (wanted) {
        walk->found = key != NULL ? key_text : token.text - (token.kind == CORE_JSON_TOKEN_STRING);
        return true;
    }
    if (is_container(child) && visit(walk, child, token.text)) {
        return true;
    }
    path_cut(walk, length);
    return false;
}

/* The opening bracket has been passed; passes the closing one. */
static bool visit(struct walk *walk, const struct core_json_value *value, const char *begin)
{
    struct core_json_token token;
    if (core_json_kind(value) == CORE_JSON_OBJECT) {
        struct core_json_member member;
        for (bool any = core_json_first(value, &member); any; any = core_json_next(&member)) {
            if (visit_child(walk, value, member.value, member.key, 0)) {
                return true;
            }
        }
    } else {
        for (size_t i = 0; i < core_json_count(value); i++) {
            if (visit_child(walk, value, core_json_at(value, i), NULL, i)) {
                return true;
            }
        }
    }
    core_json_scan_next(&walk->scan, &token);
    if (value == walk->container) {
        walk->found_without = begin;
        path_add(walk, walk->key, walk->index);
        return true;
    }
    return false;
}

int core_json_locate(const struct core_json *doc, const struct core_json_value *container,
                     const char *key, size_t index, struct core_json_site *out)
{
    struct core_json_token token;
    struct core_json_site site = {.place = {.line = 1, .column = 1}};
    struct walk walk = {.container = container, .key = key, .index = index, .site = &site};
    size_t bytes = 0;
    const char *text = core_json_text(doc, &bytes);
    core_json_scan_init(&walk.scan, text, bytes, core_json_source(doc));
    core_json_scan_next(&walk.scan, &token);
    if (is_container(core_json_root(doc))) {
        visit(&walk, core_json_root(doc), token.text);
    }
    const char *at = walk.found != NULL ? walk.found : walk.found_without;
    if (at != NULL) {
        site.place = core_json_place_of(text, (size_t)(at - text));
    }
    if (walk.path_bytes >= sizeof site.path) {
        memcpy(site.path + sizeof site.path - 4, "...", 4);
    }
    *out = site;
    return walk.found != NULL ? 0 : -ENOENT;
}

int core_json_refuse(const struct core_json *doc, const struct core_json_value *container,
                     const char *key, size_t index, int code, const char *format, ...)
{
    char what[CORE_ERR_SENTENCE_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    struct core_json_site site;
    core_json_locate(doc, container, key, index, &site);
    return core_err_set(code, "%s:%zu:%zu: %s: %s", core_json_source(doc), site.place.line,
                        site.place.column, site.path, what);
}
