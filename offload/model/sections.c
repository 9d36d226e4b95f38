/* sections.c: adds steps to a section until the pages that they read have no room in the slot. */
#include "offload/model/sections.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "offload/model/rows.h"

/* Room beside the largest matrix, for norms and biases, which then have no sections of their own. */
enum { SPARE_BYTES = 4 * MODEL_PAGE_BYTES };

/* Bytes of the owner's array that steps read of a parameter; end 0: none. */
struct use {
    uint64_t first, end;
};

/* What sections are made of, and where. Without a list, sections, ranges and places are only counted. */
struct cutting {
    const struct model_block *block;
    unsigned owner;
    uint64_t width; /* bytes of a weight */
    struct model_sections *sections;
    size_t count, range_count, place_count;
    struct use *uses;  /* [params]: of the section that steps are added to */
    struct use *tried; /* [params]: the same with one more step */
};

static uint64_t page_before(uint64_t byte)
{
    return byte / MODEL_PAGE_BYTES * MODEL_PAGE_BYTES;
}

static uint64_t page_after(uint64_t byte)
{
    return page_before(byte + MODEL_PAGE_BYTES - 1);
}

static void add_step(const struct cutting *cutting, const struct model_step *step, struct use *uses)
{
    for (unsigned i = 0; i < step->patch_count; i++) {
        const unsigned index = step->patches[i].param;
        if (step->patches[i].base != MODEL_BASE_PARAM ||
            cutting->block->params[index].owner != cutting->owner) {
            continue;
        }
        const struct model_param *param = &cutting->block->params[index];
        const bool rows = step->rows > 0 && step->param == index;
        const uint64_t row_bytes = (uint64_t)param->cols * cutting->width;
        const uint64_t first = param->offset * cutting->width +
                               (rows ? (uint64_t)step->row * row_bytes : 0);
        const uint64_t end = first + (uint64_t)(rows ? step->rows : param->rows) * row_bytes;
        if (uses[index].end == 0 || first < uses[index].first) {
            uses[index].first = first;
        }
        uses[index].end = end > uses[index].end ? end : uses[index].end;
    }
}

/* Finds the pages of a section's weights, and where they are in its slot. Parameters that touch the same
 * pages share them. `ranges` and `places` may be NULL. Returns the bytes of all ranges. */
static uint64_t find_pages(const struct cutting *cutting, const struct use *uses,
                           struct model_range *ranges, struct model_place *places,
                           struct model_section *section)
{
    struct model_range last = {.first = UINT64_MAX};
    uint64_t before = 0; /* bytes of the ranges before the last one */
    section->range_count = section->place_count = 0;
    for (unsigned i = 0; i < cutting->block->param_count; i++) {
        const uint64_t first = page_before(uses[i].first);
        const uint64_t end = page_after(uses[i].end);
        if (end == 0) {
            continue;
        }
        if (first < last.first || first > last.first + last.bytes) {
            before += last.bytes;
            last = (struct model_range){.first = first};
            section->range_count++;
        }
        last.bytes = end - last.first > last.bytes ? end - last.first : last.bytes;
        if (ranges != NULL) {
            ranges[section->range_count - 1] = last;
            places[section->place_count] = (struct model_place){
                .param = i,
                .at = (int64_t)before - (int64_t)last.first +
                      (int64_t)(cutting->block->params[i].offset * cutting->width)};
        }
        section->place_count++;
    }
    section->bytes = before + last.bytes;
    return section->bytes;
}

static void add_section(struct cutting *cutting, const struct model_section *cut)
{
    struct model_sections *sections = cutting->sections;
    const bool filled = sections->list != NULL;
    struct model_section section = *cut;
    section.ranges = filled ? sections->ranges + cutting->range_count : NULL;
    section.places = filled ? sections->places + cutting->place_count : NULL;
    (void)find_pages(cutting, cutting->uses,
                     filled ? sections->ranges + cutting->range_count : NULL,
                     filled ? sections->places + cutting->place_count : NULL, &section);
    if (filled) {
        sections->list[cutting->count] = section;
    }
    cutting->count++;
    cutting->range_count += section.range_count;
    cutting->place_count += section.place_count;
}

static bool runs(const struct model_step *step, enum model_pass pass)
{
    return pass != MODEL_PASS_RECOMPUTE || step->recompute;
}

static double flops_of(const struct model_steps *steps, enum model_pass pass)
{
    double flops = 0;
    for (size_t i = 0; i < steps->count; i++) {
        flops += runs(&steps->list[i], pass) ? steps->list[i].flops : 0;
    }
    return flops > 0 ? flops : 1;
}

/* Cuts the steps of a pass. */
static void cut_pass(struct cutting *cutting, const struct model_steps *steps, enum model_pass pass)
{
    const size_t bytes = cutting->block->param_count * sizeof *cutting->uses;
    const double flops = flops_of(steps, pass);
    struct model_section section = {.pass = pass};
    memset(cutting->uses, 0, bytes);
    for (size_t i = 0; i < steps->count; i++) {
        struct model_section more = {0};
        if (!runs(&steps->list[i], pass)) {
            continue;
        }
        memcpy(cutting->tried, cutting->uses, bytes);
        add_step(cutting, &steps->list[i], cutting->tried);
        if (section.end > 0 &&
            find_pages(cutting, cutting->tried, NULL, NULL, &more) > cutting->sections->bytes) {
            add_section(cutting, &section);
            section = (struct model_section){.pass = pass, .first = i};
            memset(cutting->tried, 0, bytes);
            add_step(cutting, &steps->list[i], cutting->tried);
        }
        memcpy(cutting->uses, cutting->tried, bytes);
        section.end = i + 1;
        section.share += steps->list[i].flops / flops;
    }
    if (section.end > 0) {
        add_section(cutting, &section);
    }
}

/* The largest number of bytes that one step needs. */
static uint64_t most_bytes(const struct cutting *cutting, const struct model_steps *steps)
{
    uint64_t most = 0;
    for (size_t i = 0; i < steps->count; i++) {
        struct model_section section;
        memset(cutting->tried, 0, cutting->block->param_count * sizeof *cutting->tried);
        add_step(cutting, &steps->list[i], cutting->tried);
        const uint64_t bytes = find_pages(cutting, cutting->tried, NULL, NULL, &section);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static void cut_passes(struct cutting *cutting, const struct model_steps *passes[MODEL_PASS_COUNT])
{
    cutting->count = cutting->range_count = cutting->place_count = 0;
    for (int pass = 0; pass < MODEL_PASS_COUNT; pass++) {
        cutting->sections->first[pass] = cutting->count;
        if (passes[pass] != NULL) {
            cut_pass(cutting, passes[pass], (enum model_pass)pass);
        }
    }
    cutting->sections->first[MODEL_PASS_COUNT] = cutting->count;
}

static int allocate(struct cutting *cutting)
{
    struct model_sections *sections = cutting->sections;
    sections->list = calloc(cutting->count + 1, sizeof *sections->list);
    sections->ranges = calloc(cutting->range_count + 1, sizeof *sections->ranges);
    sections->places = calloc(cutting->place_count + 1, sizeof *sections->places);
    return sections->list != NULL && sections->ranges != NULL && sections->places != NULL ? 0
                                                                                          : -ENOMEM;
}

/* Cuts the steps of each pass; NULL: it has none. */
static int create(struct cutting *cutting, const struct model_steps *passes[MODEL_PASS_COUNT],
                  uint64_t least_bytes, struct model_sections **out)
{
    struct model_sections *sections = calloc(1, sizeof *sections);
    int rc = -ENOMEM;
    cutting->sections = sections;
    cutting->uses = calloc(cutting->block->param_count, sizeof *cutting->uses);
    cutting->tried = calloc(cutting->block->param_count, sizeof *cutting->tried);
    if (sections == NULL || cutting->uses == NULL || cutting->tried == NULL) {
        goto done;
    }
    sections->bytes = least_bytes;
    for (int pass = 0; pass < MODEL_PASS_COUNT; pass++) {
        const uint64_t most = passes[pass] != NULL ? most_bytes(cutting, passes[pass]) : 0;
        sections->bytes = most + SPARE_BYTES > sections->bytes ? most + SPARE_BYTES
                                                               : sections->bytes;
    }
    cut_passes(cutting, passes);
    rc = allocate(cutting);
    if (rc == 0) {
        cut_passes(cutting, passes);
    }

done:
    free(cutting->uses);
    free(cutting->tried);
    if (rc != 0) {
        model_sections_destroy(sections);
        return core_err_set(rc, "no memory for the sections of %s", cutting->block->name);
    }
    *out = sections;
    return 0;
}

const struct model_steps *model_pass_steps(const struct model_program *program,
                                           enum model_pass pass)
{
    return pass == MODEL_PASS_BACKWARD ? &program->backward : &program->forward;
}

int model_sections_create(const struct model_block *block, unsigned owner,
                          const struct model_program *program, struct model_sections **out)
{
    struct cutting cutting = {
        .block = block, .owner = owner, .width = kern_type_bytes(program->shape.type)};
    const struct model_steps *passes[MODEL_PASS_COUNT];
    for (int pass = 0; pass < MODEL_PASS_COUNT; pass++) {
        passes[pass] = model_pass_steps(program, (enum model_pass)pass);
    }
    return create(&cutting, passes, 0, out);
}

int model_sections_create_logits(const struct model_block *block, unsigned owner,
                                 const struct model_program *program, uint64_t bytes,
                                 struct model_sections **out)
{
    struct cutting cutting = {
        .block = block, .owner = owner, .width = kern_type_bytes(program->shape.type)};
    const struct model_steps *passes[MODEL_PASS_COUNT] = {&program->logits};
    return create(&cutting, passes, bytes, out);
}

void model_sections_destroy(struct model_sections *sections)
{
    if (sections != NULL) {
        free(sections->list);
        free(sections->ranges);
        free(sections->places);
        free(sections);
    }
}

void model_section_bind(const struct model_section *section, const void *slot,
                        struct model_binding *binding)
{
    for (unsigned i = 0; i < section->place_count; i++) {
        const struct model_place *place = &section->places[i];
        binding->weights[place->param] = (const void *)((uintptr_t)slot + (uintptr_t)place->at);
    }
}
