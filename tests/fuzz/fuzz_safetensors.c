/* fuzz_safetensors.c: headers of safetensors files: tensors of an accepted one cover the data in
 * order, without gap or overlap. The first four bytes of the input give the number of data
 * bytes. */
#include <assert.h>
#include <string.h>

#include "offload/model/safetensors.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct model_safetensors_table table;
    if (bytes < 4) {
        return 0;
    }
    const uint64_t data_bytes = data[0] | (uint64_t)data[1] << 8 | (uint64_t)data[2] << 16 |
                                (uint64_t)data[3] << 24;
    if (model_safetensors_parse((const char *)data + 4, bytes - 4, data_bytes, &table) != 0) {
        return 0;
    }
    uint64_t at = 0;
    for (size_t i = 0; i < table.count; i++) {
        const struct model_tensor *tensor = &table.tensors[i];
        assert(tensor->offset_bytes == at && tensor->bytes <= data_bytes - at);
        assert(tensor->dimensions <= MODEL_TENSOR_DIMENSIONS_MAX && tensor->dtype_name != NULL);
        at += tensor->bytes;
        for (size_t j = 0; j < i && j < 8; j++) {
            assert(strcmp(tensor->name, table.tensors[j].name) != 0);
        }
    }
    assert(at == data_bytes);
    model_safetensors_table_fini(&table);
    return 0;
}
