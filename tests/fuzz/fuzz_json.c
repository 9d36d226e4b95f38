/* fuzz_json.c: documents: an accepted one can be written and read again to the same text. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "core/json/json.h"
#include "core/json/write.h"
#include "tests/fuzz/fuzz.h"

static void locate_members(const struct core_json *doc)
{
    struct core_json_member member;
    struct core_json_site site;
    const struct core_json_value *root = core_json_root(doc);
    size_t left = 8;
    for (bool any = core_json_first(root, &member); any && left > 0;
         any = core_json_next(&member), left--) {
        int code = core_json_locate(doc, root, member.key, 0, &site);
        assert(code == 0 || strlen(member.key) != member.key_bytes);
        assert(site.place.line >= 1 && site.place.column >= 1);
        char text[40];
        core_json_print(member.value, text, sizeof text);
        assert(strlen(text) < sizeof text);
    }
    if (core_json_kind(root) == CORE_JSON_ARRAY && core_json_count(root) > 0) {
        int code = core_json_locate(doc, root, NULL, core_json_count(root) - 1, &site);
        assert(code == 0);
    }
}

static char *written(const struct core_json *doc)
{
    struct core_json_write write;
    core_json_write_init_text(&write);
    core_json_write_value(&write, NULL, core_json_root(doc));
    int code = core_json_write_end(&write);
    assert(code == 0);
    return write.text;
}

static void round_trip(const uint8_t *data, size_t bytes, bool lenient)
{
    struct core_json *doc = NULL;
    const struct core_json_options options = {.lenient = lenient};
    if (core_json_parse((const char *)data, bytes, "fuzz", &options, &doc) != 0) {
        assert(core_err_message()[0] != '\0');
        return;
    }
    locate_members(doc);
    char *first = written(doc);
    core_json_destroy(doc);
    doc = NULL;
    int code = core_json_parse(first, strlen(first), "again", NULL, &doc);
    assert(code == 0);
    char *second = written(doc);
    assert(strcmp(first, second) == 0);
    core_json_destroy(doc);
    core_charge_free(first);
    core_charge_free(second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    round_trip(data, bytes, false);
    round_trip(data, bytes, true);
    return 0;
}
