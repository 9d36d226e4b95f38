/* model_folder.c: see model_folder.h. */
#include "tests/text/model_folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/file.h"
#include "tests/harness/test.h"
#include "tools/text/data/encode.h"
#include "tools/text/tokenizer/tokenizer.h"

const char *model_folder_make(const char *name, const char *tokenizer)
{
    static char folder[4096];
    char path[5000];
    char *text = NULL;
    size_t bytes = 0;
    snprintf(folder, sizeof folder, "%s/%s", test_directory(), name);
    mkdir(folder, 0700);
    snprintf(path, sizeof path, "%s/text/fixtures/%s.json", test_root(), tokenizer);
    check_int(core_file_read(path, 1 << 24, &text, &bytes), ==, 0);
    snprintf(path, sizeof path, "%s/tokenizer.json", name);
    test_file(path, text, bytes);
    free(text);
    return folder;
}

const char *model_folder(const char *name, const char *tokenizer, const char *config)
{
    const char *folder = model_folder_make(name, tokenizer);
    struct text_tokenizer *made = NULL;
    char path[600];
    snprintf(path, sizeof path, "%s/tokenizer_config.json", name);
    test_file(path, config, strlen(config));
    int code = text_tokenizer_load(folder, &made);
    text_tokenizer_destroy(made);
    check_true(code == 0 || code == -ENOTSUP);
    return code == 0 ? folder : NULL;
}

int model_folder_encode(const char *folder, const char *const *rows, size_t count,
                        int (*parse)(const char *text, size_t bytes, struct text_row *out))
{
    struct text_encoder *encoder = NULL;
    struct text_sample sample = {0};
    int code = text_encoder_create(folder, NULL, 0, 1, &encoder);
    for (size_t i = 0; i < count && code == 0; i++) {
        struct text_row row;
        code = parse(rows[i], strlen(rows[i]), &row);
        if (code == 0) {
            code = text_encoder_encode(encoder, &row, TEXT_TRAIN_COMPLETION, &sample);
            text_row_fini(&row);
        }
    }
    text_sample_fini(&sample);
    text_encoder_destroy(encoder);
    return code;
}
