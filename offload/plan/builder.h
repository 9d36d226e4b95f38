/* builder.h: turns commands in program order into tapes.
 * The caller adds commands as if they ran one after another and says which bytes of which buffer
 * each reads and writes. The builder derives every edge from that: a command waits for the last
 * writers of what it reads, and for the last readers and writers of what it writes; edges that
 * follow from the order of a queue or from another edge are left out. A drive moves bytes of
 * several commands of a queue at the same time, so the order of such a queue says only in which
 * order its commands end. Reuse of slots, double buffering and the border between two tapes need no
 * code of their own.
 *
 * Tapes that run one after another are built one after another with the same builder; an edge
 * reaches at most one tape back, because the executor starts a tape only when the last but one has
 * retired. Pure; the builder owns its history. */
#ifndef OFFLOAD_PLAN_BUILDER_H
#define OFFLOAD_PLAN_BUILDER_H

#include "offload/plan/tape.h"

struct plan_builder;

/* `buffers` is borrowed and outlives the builder. */
int plan_builder_create(const struct plan_buffer *buffers, uint32_t buffer_count,
                        struct plan_builder **out);
void plan_builder_destroy(struct plan_builder *builder);

/* Starts the next tape. */
void plan_builder_begin(struct plan_builder *builder);
/* Starts a tape of at most `room` commands in memory of the caller. */
void plan_builder_begin_in(struct plan_builder *builder, struct plan_command *commands,
                           uint32_t room);
/* Returns how many commands still fit into that memory. */
uint32_t plan_builder_room(const struct plan_builder *builder);

/* Adds a command: op, queue, streams, block, micro, chunk, elements, bytes, work and operands are
 * the caller's; place and edges are filled in. A command that needs more than PLAN_EDGE_MAX edges
 * gets PLAN_JOIN commands in front of it. Returns -ERANGE with a message if an operand is outside
 * its buffer. */
int plan_builder_add(struct plan_builder *builder, const struct plan_command *command);

/* Ends a tape that was begun in the caller's memory, and describes it in *out. */
void plan_builder_end_in(struct plan_builder *builder, struct plan_tape *out);
/* Ends the tape and moves it to *out. Returns 0 or -ENOMEM. */
int plan_builder_end(struct plan_builder *builder, struct plan_tape *out);

#endif
