/* fuzz_model_config.c: config.json: an accepted one has possible values, and the blocks of its
 * model hold all parameters. */
#include <assert.h>

#include "core/json/json.h"
#include "offload/model/config_read.h"
#include "offload/model/model.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct core_json *doc = NULL;
    struct model_config config;
    if (core_json_parse((const char *)data, bytes, "config.json", NULL, &doc) != 0) {
        return 0;
    }
    if (model_config_parse(doc, &config) == 0) {
        struct model *model = NULL;
        assert(config.heads % config.kv_heads == 0 && config.layers <= MODEL_LAYERS_MAX);
        for (int64_t i = 0; i < config.layers; i++) {
            assert(model_config_window(&config, i) >= 0);
            assert(model_config_scale(&config, i) > 0.0);
        }
        if (model_create(&config, NULL, &model) == 0) {
            uint64_t elements = 0;
            for (unsigned i = 0; i < model->block_count; i++) {
                elements += model->blocks[i].elements;
            }
            assert(elements >= model->parameters && model->parameters > 0);
        }
        model_destroy(model);
    }
    core_json_destroy(doc);
    return 0;
}
