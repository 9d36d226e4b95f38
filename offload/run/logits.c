/* logits.c: the logits of the token after a row, to sample what a model has learned. The head runs
 * for one token on what the evaluation's tape left in memory. No tape runs meanwhile. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/dev/dev.h"
#include "offload/model/dtype.h"
#include "offload/run/chunks.h"

/* Returns the head's command in an evaluation's tape. */
static const struct plan_command *head_command(const struct run_rank *rank)
{
    const struct plan_tape *tape = plan_tape(rank->plan, PLAN_EVAL, PLAN_EVAL);
    for (uint32_t i = tape->count; i-- > 0;) {
        const struct plan_command *command = &tape->commands[i];
        if (command->op == PLAN_FWD && command->block + 1u == rank->input->compute_count) {
            return command;
        }
    }
    return NULL;
}

static int launch(struct run_rank *rank, const struct model_program *program,
                  const struct model_binding *binding)
{
    struct model_cursor cursor = {0};
    struct core_fence done = {0};
    int rc = model_run(rank->compute_queue, &program->logits, MODEL_RUN_ALL, binding, &cursor,
                       &done);
    return rc != 0 ? rc : run_rank_wait(rank, dev_queue_tail(rank->compute_queue));
}

/* Gathers a range of weights; this rank's part is in place. */
static int gather(struct run_rank *rank, uint32_t source, struct plan_span range, char *to)
{
    const struct plan_span own = plan_weight_pages(rank->input, source, range);
    const struct run_collect_pages pages = {.block = source,
                                            .first = range.first,
                                            .bytes = range.count,
                                            .from = to + (own.first - range.first),
                                            .to = to};
    struct core_fence done;
    int rc = run_rank_wait(rank, dev_queue_tail(rank->compute_queue));
    if (rc != 0) {
        return rc;
    }
    rc = run_collect_pages(&rank->collect, &pages, &done);
    return rc != 0 ? rc : run_rank_wait(rank, done);
}

/* Copies this rank's pages to the slot, where the range begins at `at`. */
static int load_own_pages(struct run_rank *rank, uint32_t source, struct plan_span range,
                          char *slot, uint64_t at)
{
    const uint32_t stage = plan_layout_of(rank->plan)->section_stages[0];
    const char *kept = run_chunk_weights_memory(rank, source);
    const struct plan_span own = plan_weight_pages(rank->input, source, range);
    const uint64_t first = own.first - plan_weight_span(rank->input, source).first *
                                           rank->input->blocks[source].format.weight_bytes;
    char *to = slot + at + (own.first - range.first);
    char *read = stage != PLAN_NONE ? rank->memory.at[stage] + (to - slot) : to;
    const struct dev_copy move = {.direction = DEV_COPY_UP,
                                  .to = to,
                                  .from = kept != NULL ? kept + first : read,
                                  .bytes = own.count};
    struct core_fence unused;
    if (own.count == 0) {
        return 0;
    }
    int rc = kept == NULL ? run_pages_read(rank, source, first, own.count, read) : 0;
    return rc == 0 && move.from != move.to ? dev_queue_copy(rank->compute_queue, &move, &unused)
                                           : rc;
}

static int load_section(struct run_rank *rank, uint32_t source, const struct model_section *section,
                        char *slot)
{
    uint64_t at = 0;
    for (unsigned i = 0; i < section->range_count; i++) {
        const struct plan_span range = {.first = section->ranges[i].first,
                                        .count = section->ranges[i].bytes};
        int rc = load_own_pages(rank, source, range, slot, at);
        if (rc == 0 && plan_shards_weights(rank->input)) {
            rc = gather(rank, source, range, slot + at);
        }
        if (rc != 0) {
            return rc;
        }
        at += range.count;
    }
    return 0;
}

static int launch_sections(struct run_rank *rank, uint32_t source, char *slot)
{
    const struct model_sections *sections = rank->shapes->one_sections;
    struct model_binding *binding = &rank->binding;
    for (size_t i = 0; i < sections->first[MODEL_PASS_COUNT]; i++) {
        const struct model_section *section = &sections->list[i];
        struct model_cursor cursor = {.next = section->first, .end = section->end};
        struct core_fence done = {0};
        int rc = load_section(rank, source, section, slot);
        if (rc == 0) {
            model_section_bind(section, slot, binding);
            rc = model_run(rank->compute_queue, &rank->shapes->one->logits, MODEL_RUN_ALL, binding,
                           &cursor, &done);
        }
        if (rc == 0) {
            rc = run_rank_wait(rank, dev_queue_tail(rank->compute_queue));
        }
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int fetch(struct run_rank *rank, const void *from, uint64_t bytes, void *to)
{
    const struct dev_copy move = {
        .direction = DEV_COPY_DOWN, .to = to, .from = from, .bytes = bytes};
    struct core_fence done;
    int rc = dev_queue_copy(rank->compute_queue, &move, &done);
    return rc != 0 ? rc : run_rank_wait(rank, done);
}

static int last_logits(struct run_rank *rank, const struct model_program *program, int64_t length,
                       float *out)
{
    const struct model *model = rank->shapes->model;
    const unsigned index = model->compute_count - 1;
    const struct plan_block_shape *shape = &rank->input->blocks[index];
    const struct model_block *block = &model->blocks[index];
    const struct plan_command *head = head_command(rank);
    const enum kern_type type = rank->options->type;
    const uint64_t width = kern_type_bytes(type);
    const uint64_t bytes = (uint64_t)model->config.vocab * width;
    const struct kern_grad none = {0};
    struct model_binding *binding = &rank->binding;
    assert(head != NULL);
    void *logits = NULL;
    void *host = malloc(bytes);
    int rc = host != NULL
                 ? dev_memory_alloc(rank->device, bytes, &logits)
                 : core_err_set(-ENOMEM, "no memory for %" PRIu64 " logits", bytes / width);
    if (rc != 0) {
        free(host);
        return rc;
    }
    model_binding_clear(binding);
    model_binding_set_flat(binding, block, index, type,
                           run_memory_of(&rank->memory, head, PLAN_AS_WEIGHTS), &none);
    uint32_t operand = 0;
    for (uint32_t i = 0; i < shape->borrow_count; i++) {
        if (head->section == NULL || shape->borrows[i] != shape->source) {
            model_binding_set_flat(binding, block, shape->borrows[i], type,
                                   run_memory_borrowed(&rank->memory, head, operand++), &none);
        }
    }
    binding->base[MODEL_BASE_IN] = run_memory_of(&rank->memory, head, PLAN_AS_IN) +
                                   (uint64_t)((length - 1) * model->config.hidden) * width;
    binding->base[MODEL_BASE_TEMP] = run_memory_of(&rank->memory, head, PLAN_AS_SCRATCH);
    binding->base[MODEL_BASE_OUT] = logits;
    rc = head->section != NULL
             ? launch_sections(rank, shape->source,
                               run_memory_of(&rank->memory, head, PLAN_AS_SECTION))
             : launch(rank, program, binding);
    if (rc == 0) {
        rc = fetch(rank, logits, bytes, host);
    }
    if (rc == 0) {
        model_convert(out, MODEL_F32, host, model_dtype_of(type), (size_t)model->config.vocab);
    }
    dev_memory_free(rank->device, logits);
    free(host);
    return rc;
}

/* Takes part in another rank's logits. */
static int gather_sections(struct run_rank *rank)
{
    const struct plan_command *head = head_command(rank);
    const struct model_sections *sections = rank->shapes->one_sections;
    const uint32_t source = rank->input->blocks[rank->input->compute_count - 1].source;
    int rc = 0;
    assert(head != NULL);
    if (head->section == NULL || !plan_shards_weights(rank->input)) {
        return 0;
    }
    char *slot = run_memory_of(&rank->memory, head, PLAN_AS_SECTION);
    for (size_t i = 0; rc == 0 && i < sections->first[MODEL_PASS_COUNT]; i++) {
        rc = load_section(rank, source, &sections->list[i], slot);
    }
    return rc;
}

int run_rank_logits(struct run_rank *rank, const int32_t *ids, int64_t length, float *out)
{
    const struct model_batch batch = {.rows = 1, .length = length, .ids = ids};
    struct kern_loss unused;
    int rc = run_rank_evaluate(rank, ids != NULL ? &batch : NULL, &unused);
    if (rc != 0) {
        return rc;
    }
    return ids != NULL ? last_logits(rank, rank->shapes->one, length, out) : gather_sections(rank);
}
