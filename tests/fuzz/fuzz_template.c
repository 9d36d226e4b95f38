/* fuzz_template.c: chat templates: renderings are valid UTF-8, and errors name the source. */
#include <assert.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/utf8.h"
#include "core/json/json.h"
#include "tests/fuzz/fuzz.h"
#include "tools/text/jinja/jinja.h"

static const char messages[] =
    "[{\"role\": \"user\", \"content\": \"Hi \\u00e9\", \"n\": [1, 2.5, null, true]},"
    "{\"role\": \"assistant\", \"content\": \"\", \"calls\": [{\"a\": {\"b\": -1}}]}]";

static void check_rendering(const struct jinja_rendering *rendering)
{
    for (size_t at = 0; at < rendering->bytes;) {
        const size_t length = core_utf8_sequence(rendering->text + at, rendering->bytes - at);
        assert(length > 0);
        at += length;
    }
    assert(rendering->text[rendering->bytes] == '\0');
    for (size_t i = 0; i < rendering->generated_count; i++) {
        assert(rendering->generated[i].begin <= rendering->generated[i].end);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct core_json *doc = NULL;
    struct jinja_template *template = NULL;
    struct jinja_run *run = NULL;
    struct jinja_rendering rendering;
    const struct jinja_limits limits = {.steps = 20000, .bytes = 4 << 20};
    if (jinja_template_create((const char *)data, bytes, "fuzz", &template) != 0) {
        assert(strncmp(core_err_message(), "fuzz:", 5) == 0);
        return 0;
    }
    int code = core_json_parse(messages, sizeof messages - 1, "messages", NULL, &doc);
    assert(code == 0);
    code = jinja_run_create(&limits, &run);
    assert(code == 0);
    const struct jinja_variable variables[] = {
        {.name = "messages", .kind = JINJA_VARIABLE_JSON, .json = core_json_root(doc)},
        {.name = "m", .kind = JINJA_VARIABLE_TEXT, .text = "text"},
        {.name = "tools", .kind = JINJA_VARIABLE_NONE},
        {.name = "add_generation_prompt", .kind = JINJA_VARIABLE_BOOL, .truth = true}};
    if (jinja_render(template, run, variables, 4, 1753000000, &rendering) == 0) {
        check_rendering(&rendering);
    } else {
        assert(strncmp(core_err_message(), "fuzz:", 5) == 0);
    }
    jinja_run_destroy(run);
    jinja_template_destroy(template);
    core_json_destroy(doc);
    return 0;
}
