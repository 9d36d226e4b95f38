/* print.c: prints a command as one line. */
#include "offload/plan/print.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "offload/model/sections.h"

struct text {
    char *at;
    size_t bytes;
    size_t length;
};

static void put(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(struct text *text, const char *format, ...)
{
    size_t used = text->length < text->bytes ? text->length : text->bytes;
    va_list list;
    va_start(list, format);
    int wrote = vsnprintf(text->at + used, text->bytes - used, format, list);
    va_end(list);
    text->length += wrote > 0 ? (size_t)wrote : 0;
}

static void put_work(struct text *text, const struct plan_input *input,
                     const struct plan_command *command)
{
    if (command->op == PLAN_JOIN || command->op == PLAN_NORM) {
        return;
    }
    if (command->block == PLAN_NONE) {
        put(text, " tile sums");
    } else {
        put(text, " %s", input->blocks[command->block].name);
    }
    if (command->micro != PLAN_NONE) {
        put(text, " #%u", command->micro);
    }
    if (command->streams != 0) {
        char streams[48];
        plan_streams_print(command->streams, streams, sizeof streams);
        put(text, " %s", streams);
    }
    if (command->op == PLAN_UPDATE || (command->streams & ~(unsigned)PLAN_ACT) != 0) {
        put(text, " chunk %u", command->chunk);
    }
    if (command->section != NULL) {
        put(text, " steps %zu to %zu", command->section->first, command->section->end - 1);
    }
    if (command->bytes != 0) {
        put(text, " %" PRIu64 " B", command->bytes);
    }
}

static void put_operands(struct text *text, const struct plan *plan,
                         const struct plan_command *command)
{
    static const char *const words[] = {"", "reads", "writes", "changes"};
    for (unsigned access = PLAN_READS; access <= PLAN_CHANGES; access++) {
        bool first = true;
        for (uint32_t i = 0; i < command->operand_count; i++) {
            const struct plan_operand *operand = &command->operands[i];
            if (operand->access != access) {
                continue;
            }
            const struct plan_buffer *buffer = plan_buffer(plan, operand->buffer);
            put(text, " %s%s", first ? words[access] : "", first ? " " : "");
            put(text, "%s:%s", plan_tier_name((enum plan_tier)buffer->tier), buffer->name);
            if (operand->offset != 0) {
                put(text, "+%" PRIu64, operand->offset);
            }
            first = false;
        }
    }
}

static void put_edges(struct text *text, const struct plan_command *command)
{
    const char *word = " after";
    for (int e = 0; e < PLAN_EDGE_MAX; e++) {
        if (command->edges[e].queue != PLAN_Q_COUNT) {
            put(text, "%s %s %d", word, plan_queue_name((enum plan_queue)command->edges[e].queue),
                command->edges[e].count);
            word = ",";
        }
    }
}

int plan_print_command(const struct plan_input *input, const struct plan *plan,
                       const struct plan_command *command, char *text_out, size_t bytes)
{
    struct text text = {.at = text_out, .bytes = bytes};
    put(&text, "%-11s %4u  %-6s", plan_queue_name((enum plan_queue)command->queue), command->place,
        plan_op_name((enum plan_op)command->op));
    put_work(&text, input, command);
    put_operands(&text, plan, command);
    put_edges(&text, command);
    return (int)text.length;
}

const char *plan_resource_name(enum plan_resource resource)
{
    static const char *const names[PLAN_R_COUNT] = {"compute", "processor cores", "drive",
                                                    "link up", "link down"};
    return names[resource];
}
