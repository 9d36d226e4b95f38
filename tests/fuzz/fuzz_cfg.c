/* fuzz_cfg.c: configurations: a resolved one resolves to itself; a refusal has a key, a line and a
 * reason. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/base64.h"
#include "core/base/charge.h"
#include "core/base/err.h"
#include "core/config/config.h"
#include "core/json/write.h"
#include "tests/fuzz/fuzz.h"

static void look(const struct core_cfg *cfg)
{
    size_t refused = 0;
    for (size_t i = 0; i < core_cfg_notes_count(cfg); i++) {
        struct core_cfg_note note = core_cfg_note(cfg, i);
        assert(note.key[0] != '\0');
        refused += note.kind == CORE_CFG_NOTE_REFUSED;
        assert(note.kind != CORE_CFG_NOTE_REFUSED || (note.why[0] != '\0' && note.line > 0));
    }
    assert((core_cfg_check(cfg) != 0) == (refused > 0));
}

static char *resolved(const struct core_cfg *cfg)
{
    struct core_json_write write;
    core_json_write_init_text(&write);
    core_cfg_write(cfg, &write, NULL);
    int code = core_json_write_end(&write);
    assert(code == 0);
    return write.text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct core_cfg *cfg = NULL;
    char *plain = NULL;
    size_t plain_bytes = 0;
    if (core_base64_decode((const char *)data, bytes, &plain, &plain_bytes) == 0) {
        free(plain);
    }
    if (core_cfg_parse((const char *)data, bytes, "fuzz", NULL, &cfg) != 0) {
        assert(core_err_message()[0] != '\0');
        return 0;
    }
    look(cfg);
    bool valid = core_cfg_check(cfg) == 0;
    char *first = valid ? resolved(cfg) : NULL;
    core_cfg_destroy(cfg);
    if (valid) {
        cfg = NULL;
        int code = core_cfg_parse(first, strlen(first), "again", NULL, &cfg);
        assert(code == 0);
        char *second = resolved(cfg);
        assert(strcmp(first, second) == 0);
        core_cfg_destroy(cfg);
        core_charge_free(second);
    }
    core_charge_free(first);
    return 0;
}
