/* fuzz_rows.c: rows of data: they are refused with a message, or their result is consistent. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "core/json/json.h"
#include "tests/fuzz/fuzz.h"
#include "tools/text/data/row.h"
#include "tools/text/data/sample.h"

static void check_messages(const struct text_row *row, const struct core_json_value *messages)
{
    const size_t count = core_json_count(messages);
    assert(count > 0 && row->prompt_messages <= count);
    for (size_t i = 0; i < count; i++) {
        const struct core_json_value *role = core_json_find(core_json_at(messages, i), "role");
        assert(role != NULL && core_json_kind(role) == CORE_JSON_STRING);
    }
}

/* Returns whether a text begins and ends between characters. */
static bool is_whole(const char *text, size_t bytes)
{
    return (text[0] & 0xc0) != 0x80 && (text[bytes] & 0xc0) != 0x80;
}

static void check_pair(const uint8_t *data, size_t bytes)
{
    struct text_row row;
    (void)core_err_adopt(-EIO, "");
    if (text_row_parse_pair((const char *)data, bytes, &row) != 0) {
        assert(core_err_message()[0] != '\0');
        return;
    }
    if (row.kind == TEXT_ROW_CHAT_PAIR) {
        check_messages(&row, row.messages);
        check_messages(&row, row.rejected_messages);
        assert(row.prompt_messages > 0 && row.prompt_messages < core_json_count(row.messages) &&
               row.prompt_messages < core_json_count(row.rejected_messages));
    } else {
        assert(row.kind == TEXT_ROW_PAIR && row.completion_bytes > 0 && row.rejected_bytes > 0);
        assert(is_whole(row.text, row.text_bytes) &&
               is_whole(row.completion, row.completion_bytes) &&
               is_whole(row.rejected, row.rejected_bytes));
        assert(row.completion[row.completion_bytes] == '\0' &&
               row.rejected[row.rejected_bytes] == '\0');
    }
    text_row_fini(&row);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct text_row row;
    struct text_sample sample = {0};
    (void)core_err_adopt(-EIO, "");
    int code = text_sample_read(&sample, (const char *)data, bytes, 1000);
    assert(code >= 0 || core_err_message()[0] != '\0');
    for (size_t i = 0; code == 1 && i < sample.count; i++) {
        assert(sample.ids[i] >= 0 && sample.ids[i] < 1000);
        assert(sample.labels[i] == TEXT_IGNORED || sample.labels[i] >= 0);
    }
    assert(code != 1 || text_sample_targets(sample.labels, sample.count) < sample.count);
    text_sample_fini(&sample);
    check_pair(data, bytes);
    (void)core_err_adopt(-EIO, "");
    code = text_row_parse((const char *)data, bytes, &row);
    if (code != 0) {
        assert(core_err_message()[0] != '\0');
        return 0;
    }
    assert(row.kind != TEXT_ROW_PAIR && row.kind != TEXT_ROW_CHAT_PAIR);
    if (row.kind == TEXT_ROW_CHAT || row.kind == TEXT_ROW_CHAT_COMPLETION) {
        check_messages(&row, row.messages);
    } else {
        assert(row.text[row.text_bytes] == '\0');
    }
    text_row_fini(&row);
    return 0;
}
