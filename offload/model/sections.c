/* sections.c: adds steps to a section while the slot has room. */
#include "offload/model/sections.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "offload/model/rows.h"

/* Room for norms and biases, which then seldom need sections of their own. */
enum { SPARE_BYTES = 4 * MODEL_PAGE_BYTES };

/* Bytes of a parameter that steps read; end 0: none. */
struct use {
    uint64_t first, end;
};

/* A first run without lists only counts. */
struct cutting {
    const struct model_block *block;
    struct model_sections_source source;
    uint64_t width; /* bytes of a weight */
    enum kern_type type;
    struct model_sections *sections;
    size_t count, range_count, place_count, expansion_count;
    struct use *uses;  /* [params]: of the open section */
    struct use *tried; /* `uses` with one more step */
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
            cutting->block->params[index].owner != cutting->source.owner) {
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

/* ---- pages ---- */

/* The pages of a section, as ranges that follow each other in the slot. Parameters may share a
 * page. */
struct pages {
    struct model_range *list; /* NULL: only counted */
    struct model_range last;
    uint64_t before; /* bytes of earlier ranges */
    unsigned count;
};

/* Returns where byte 0 of the array would be in the slot. */
static int64_t add_pages(struct pages *pages, uint64_t first_byte, uint64_t end_byte)
{
    const uint64_t first = page_before(first_byte);
    const uint64_t end = page_after(end_byte);
    if (pages->count == 0 || first < pages->last.first ||
        first > pages->last.first + pages->last.bytes) {
        pages->before += pages->last.bytes;
        pages->last = (struct model_range){.first = first};
        pages->count++;
    }
    if (end - pages->last.first > pages->last.bytes) {
        pages->last.bytes = end - pages->last.first;
    }
    if (pages->list != NULL) {
        pages->list[pages->count - 1] = pages->last;
    }
    return (int64_t)pages->before - (int64_t)pages->last.first;
}

static uint64_t pages_bytes(const struct pages *pages)
{
    return pages->before + pages->last.bytes;
}

/* ---- stored weights ---- */

/* Returns false if the tensor has no weights in `use`. */
static bool find_part(const struct cutting *cutting, const struct model_stored_part *part,
                      const struct use *use, struct kern_expand_arguments *out)
{
    const uint64_t grain = (uint64_t)kern_quant_grain(part->quant, part->cols);
    const uint64_t elements = (uint64_t)(part->rows * part->cols);
    const uint64_t use_first = use->first / cutting->width;
    const uint64_t use_end = use->end / cutting->width;
    if (use_end <= part->first || use_first >= part->first + elements) {
        return false;
    }
    const uint64_t first = use_first > part->first ? (use_first - part->first) / grain * grain : 0;
    const uint64_t end = (use_end - part->first + grain - 1) / grain * grain;
    *out = (struct kern_expand_arguments){
        .type = cutting->type,
        .quant = part->quant,
        .from = part->from,
        .rows = part->rows,
        .cols = part->cols,
        .first = (int64_t)first,
        .count = (int64_t)((end < elements ? end : elements) - first),
    };
    return true;
}

/* Expansions make whole rows or blocks, within the parameter. */
static struct use expanded_use(const struct cutting *cutting, const struct use *use)
{
    const struct model_stored *stored = cutting->source.stored;
    struct use expanded = *use;
    for (unsigned i = 0; stored != NULL && i < stored->count; i++) {
        struct kern_expand_arguments part;
        if (find_part(cutting, &stored->parts[i], use, &part)) {
            const uint64_t first = (stored->parts[i].first + (uint64_t)part.first) * cutting->width;
            const uint64_t end = first + (uint64_t)part.count * cutting->width;
            expanded.first = first < expanded.first ? first : expanded.first;
            expanded.end = end > expanded.end ? end : expanded.end;
        }
    }
    return expanded;
}

static struct kern_quant_span moved_span(struct kern_quant_span span, uint64_t by)
{
    return (struct kern_quant_span){span.begin + by, span.end + by};
}

/* `zero`: where byte 0 of the weights would be in the slot that the steps read. */
static void add_expansions(const struct cutting *cutting, const struct use *use, int64_t zero,
                           struct pages *pages, struct model_expansion *list,
                           struct model_section *section)
{
    const struct model_stored *stored = cutting->source.stored;
    for (unsigned i = 0; i < stored->count; i++) {
        const struct model_stored_part *part = &stored->parts[i];
        struct model_expansion made;
        if (!find_part(cutting, part, use, &made.part)) {
            continue;
        }
        const struct kern_quant_spans spans = kern_quant_spans_of(&made.part);
        const struct kern_quant_span *const all[] = {&spans.codes, &spans.scales, &spans.nested};
        for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
            if (all[k]->end > all[k]->begin) {
                (void)add_pages(pages, part->offset_bytes + all[k]->begin,
                                part->offset_bytes + all[k]->end);
            }
        }
        made.stored.codes = moved_span(spans.codes, part->offset_bytes);
        made.stored.scales = moved_span(spans.scales, part->offset_bytes);
        made.stored.nested = moved_span(spans.nested, part->offset_bytes);
        made.to = (uint64_t)(zero +
                             (int64_t)((part->first + (uint64_t)made.part.first) * cutting->width));
        if (list != NULL) {
            list[section->expansion_count] = made;
        }
        section->expansion_count++;
        section->expanded_elements += (uint64_t)made.part.count;
    }
}

/* ---- sections ---- */

/* NULL: parts are only counted. */
struct lists {
    struct model_range *ranges;
    struct model_place *places;
    struct model_expansion *expansions;
};

static void find_pages(const struct cutting *cutting, const struct use *uses,
                       const struct lists *lists, struct model_section *section)
{
    const bool is_stored = cutting->source.stored != NULL;
    struct pages kept = {.list = lists->ranges};
    struct pages expanded = {.list = NULL};
    section->place_count = section->expansion_count = 0;
    section->expanded_elements = 0;
    for (unsigned i = 0; i < cutting->block->param_count; i++) {
        if (uses[i].end == 0) {
            continue;
        }
        const struct use use = expanded_use(cutting, &uses[i]);
        const int64_t zero = add_pages(is_stored ? &expanded : &kept, use.first, use.end);
        if (lists->places != NULL) {
            const uint64_t offset = cutting->block->params[i].offset * cutting->width;
            lists->places[section->place_count] = (struct model_place){
                .param = i, .at = zero + (int64_t)offset};
        }
        section->place_count++;
        if (is_stored) {
            add_expansions(cutting, &uses[i], zero, &kept, lists->expansions, section);
        }
    }
    section->range_count = kept.count;
    section->bytes = pages_bytes(&kept);
    section->expanded_bytes = pages_bytes(&expanded);
}

static void add_section(struct cutting *cutting, const struct model_section *cut)
{
    struct model_sections *sections = cutting->sections;
    struct lists lists = {NULL, NULL, NULL};
    struct model_section section = *cut;
    if (sections->list != NULL) {
        lists = (struct lists){sections->ranges + cutting->range_count,
                               sections->places + cutting->place_count,
                               sections->expansions + cutting->expansion_count};
    }
    section.ranges = lists.ranges;
    section.places = lists.places;
    section.expansions = lists.expansions;
    find_pages(cutting, cutting->uses, &lists, &section);
    if (sections->list != NULL) {
        sections->list[cutting->count] = section;
    }
    cutting->count++;
    cutting->range_count += section.range_count;
    cutting->place_count += section.place_count;
    cutting->expansion_count += section.expansion_count;
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

static bool has_room(const struct cutting *cutting, const struct use *tried)
{
    const struct lists none = {NULL, NULL, NULL};
    struct model_section section = {0};
    find_pages(cutting, tried, &none, &section);
    return section.bytes <= cutting->sections->bytes &&
           section.expanded_bytes <= cutting->sections->expanded_bytes;
}

static void cut_pass(struct cutting *cutting, const struct model_steps *steps, enum model_pass pass)
{
    const size_t bytes = cutting->block->param_count * sizeof *cutting->uses;
    const double flops = flops_of(steps, pass);
    struct model_section section = {.pass = pass};
    memset(cutting->uses, 0, bytes);
    for (size_t i = 0; i < steps->count; i++) {
        if (!runs(&steps->list[i], pass)) {
            continue;
        }
        memcpy(cutting->tried, cutting->uses, bytes);
        add_step(cutting, &steps->list[i], cutting->tried);
        if (section.end > 0 && !has_room(cutting, cutting->tried)) {
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

/* Sizes the slots for the largest step, with SPARE_BYTES more. */
static void make_room(const struct cutting *cutting, const struct model_steps *steps)
{
    const struct lists none = {NULL, NULL, NULL};
    struct model_sections *sections = cutting->sections;
    for (size_t i = 0; i < steps->count; i++) {
        struct model_section section = {0};
        memset(cutting->tried, 0, cutting->block->param_count * sizeof *cutting->tried);
        add_step(cutting, &steps->list[i], cutting->tried);
        find_pages(cutting, cutting->tried, &none, &section);
        const uint64_t bytes = section.bytes + SPARE_BYTES;
        const uint64_t expanded = section.expanded_bytes + SPARE_BYTES;
        sections->bytes = bytes > sections->bytes ? bytes : sections->bytes;
        if (cutting->source.stored != NULL && expanded > sections->expanded_bytes) {
            sections->expanded_bytes = expanded;
        }
    }
}

static void cut_passes(struct cutting *cutting, const struct model_steps *passes[MODEL_PASS_COUNT])
{
    cutting->count = cutting->range_count = cutting->place_count = cutting->expansion_count = 0;
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
    sections->expansions = calloc(cutting->expansion_count + 1, sizeof *sections->expansions);
    return sections->list != NULL && sections->ranges != NULL && sections->places != NULL &&
                   sections->expansions != NULL
               ? 0
               : -ENOMEM;
}

/* passes[i] is NULL if there is no such pass. */
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
        if (passes[pass] != NULL) {
            make_room(cutting, passes[pass]);
        }
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

static struct cutting begin(const struct model_block *block, struct model_sections_source source,
                            const struct model_program *program)
{
    return (struct cutting){.block = block,
                            .source = source,
                            .width = kern_type_bytes(program->shape.type),
                            .type = program->shape.type};
}

int model_sections_create(const struct model_block *block,
                          const struct model_sections_source *source,
                          const struct model_program *program, struct model_sections **out)
{
    struct cutting cutting = begin(block, *source, program);
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
    struct cutting cutting = begin(block, (struct model_sections_source){.owner = owner}, program);
    const struct model_steps *passes[MODEL_PASS_COUNT] = {&program->logits};
    return create(&cutting, passes, bytes, out);
}

void model_sections_destroy(struct model_sections *sections)
{
    if (sections != NULL) {
        free(sections->list);
        free(sections->ranges);
        free(sections->places);
        free(sections->expansions);
        free(sections);
    }
}

static const char *byte_at(const struct model_section *section, const char *ranges, uint64_t byte)
{
    for (unsigned i = 0; i < section->range_count; i++) {
        const struct model_range *range = &section->ranges[i];
        if (byte >= range->first && byte < range->first + range->bytes) {
            return ranges + (byte - range->first);
        }
        ranges += range->bytes;
    }
    return ranges; /* the format has no such part */
}

void model_expansion_point(const struct model_section *section, unsigned index, const char *from,
                           bool pages, struct kern_expand_arguments *out)
{
    const struct model_expansion *expansion = &section->expansions[index];
    const uint64_t begins[] = {expansion->stored.codes.begin, expansion->stored.scales.begin,
                               expansion->stored.nested.begin};
    const char *at[3];
    for (int i = 0; i < 3; i++) {
        at[i] = pages ? byte_at(section, from, begins[i]) : from + begins[i];
    }
    *out = expansion->part;
    out->codes = at[0];
    out->scales = at[1];
    out->nested = (const float *)(const void *)at[2];
}

void model_section_bind(const struct model_section *section, const void *slot,
                        struct model_binding *binding)
{
    for (unsigned i = 0; i < section->place_count; i++) {
        const struct model_place *place = &section->places[i];
        binding->weights[place->param] = (const void *)((uintptr_t)slot + (uintptr_t)place->at);
    }
}
