/* render_jinja.c TEMPLATE INPUTS [NOW]: for tests/oracle/chat_templates.py: renders a template for
 * the objects in a JSON array, and writes an array of [text, spans] or [null, message]. */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/json/json.h"
#include "core/json/write.h"
#include "tools/text/jinja/jinja.h"

static void answer(struct core_json_write *json, const struct jinja_template *template,
                   struct jinja_run *run, const struct core_json_value *input, int64_t now)
{
    struct jinja_variable variables[64];
    size_t count = 0;
    struct core_json_member member;
    for (bool any = core_json_first(input, &member); any && count < 64;
         any = core_json_next(&member)) {
        variables[count++] = (struct jinja_variable){
            .name = member.key, .kind = JINJA_VARIABLE_JSON, .json = member.value};
    }
    struct jinja_rendering rendering;
    int code = template == NULL ? -1
                                : jinja_render(template, run, variables, count, now, &rendering);
    core_json_write_array_begin(json, NULL);
    if (code != 0) {
        core_json_write_null(json, NULL);
        core_json_write_string(json, NULL, core_err_message());
    } else {
        core_json_write_string_bytes(json, NULL, rendering.text, rendering.bytes);
        core_json_write_array_begin(json, NULL);
        for (size_t i = 0; i < rendering.generated_count; i++) {
            core_json_write_unsigned(json, NULL, rendering.generated[i].begin);
            core_json_write_unsigned(json, NULL, rendering.generated[i].end);
        }
        core_json_write_array_end(json);
    }
    core_json_write_array_end(json);
}

int main(int argc, char **argv)
{
    char *source = NULL;
    size_t bytes = 0;
    struct core_json *inputs = NULL;
    struct jinja_template *template = NULL;
    struct jinja_run *run = NULL;
    if (argc < 3 || core_file_read(argv[1], 1 << 24, &source, &bytes) != 0 ||
        core_json_load(argv[2], NULL, &inputs) != 0 || jinja_run_create(NULL, &run) != 0) {
        fprintf(stderr, "%s\n", core_err_message());
        return 2;
    }
    struct core_json_write json;
    core_json_write_init_file(&json, stdout);
    core_json_write_array_begin(&json, NULL);
    jinja_template_create(source, bytes, argv[1], &template);
    for (size_t i = 0; i < core_json_count(core_json_root(inputs)); i++) {
        answer(&json, template, run, core_json_at(core_json_root(inputs), i),
               argc > 3 ? atoll(argv[3]) : 0);
    }
    core_json_write_array_end(&json);
    int code = core_json_write_end(&json);
    jinja_run_destroy(run);
    jinja_template_destroy(template);
    core_json_destroy(inputs);
    free(source);
    return code == 0 ? 0 : 1;
}
