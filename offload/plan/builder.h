/* builder.h: turns commands in program order into tapes. From the bytes of buffers that commands
 * read and write, the builder derives the edges: a command waits for the last writers of what it
 * reads, and for the last readers and writers of what it writes. Edges that follow from others are
 * left out. A drive moves bytes of several commands of a queue at the same time, so the order of
 * such a queue only says in which order commands end. Successive tapes are built with one builder;
 * an edge reaches at most one tape back, because the executor starts a tape only when the last but
 * one has retired. Pure. */
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
/* Starts a tape of at most `room` commands in the caller's memory. */
void plan_builder_begin_in(struct plan_builder *builder, struct plan_command *commands,
                           uint32_t room);
/* Returns how many more commands fit into that memory. */
uint32_t plan_builder_room(const struct plan_builder *builder);

/* Adds a command; place and edges are filled in, the other members are the caller's. A command that
 * needs more than PLAN_EDGE_MAX edges gets PLAN_JOIN commands in front of it. Fails if an operand
 * is outside its buffer, or the caller's memory is full. */
int plan_builder_add(struct plan_builder *builder, const struct plan_command *command);

/* Ends a tape in the caller's memory, and describes it in *out. */
void plan_builder_end_in(struct plan_builder *builder, struct plan_tape *out);
/* Ends the tape and moves it to *out. */
int plan_builder_end(struct plan_builder *builder, struct plan_tape *out);

#endif
