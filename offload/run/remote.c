/* remote.c: sends and receives calls, replies, micro-batches and streams. */
#include "offload/run/remote.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/size.h"
#include "core/coll/peers.h"
#include "offload/plan/shard.h"
#include "offload/run/measure.h"

enum { BATCH_ARRAYS = 4, PIECE_ELEMENTS = 256 << 10 };

/* Precedes every call's arguments, in one transfer. */
struct call_head {
    uint32_t call;
    uint32_t bytes;
};

/* A micro-batch; its arrays follow, one transfer each. */
struct batch_head {
    int64_t rows, length;
    uint32_t has[BATCH_ARRAYS]; /* ids, labels, positions, starts */
};

enum { PIECE_GRAIN = 64 };

/* A range of streams. Bytes follow in the same transfer, each stream at a multiple of
 * PIECE_GRAIN. */
struct piece_head {
    uint64_t first, count; /* count 0: the last piece */
    uint64_t bytes[STORE_STREAM_COUNT];
};
_Static_assert(sizeof(struct piece_head) <= PIECE_GRAIN, "the first stream follows the head");
_Static_assert(PIECE_ELEMENTS * 24 + 8 * PIECE_GRAIN < RUN_PIECE_BYTES, "a piece fits");

/* ---- the first process ---- */

int run_remote_call(struct coll_peers *peers, uint32_t rank, enum run_call call,
                    const void *arguments, size_t bytes)
{
    const struct call_head head = {.call = call, .bytes = (uint32_t)bytes};
    char *text = malloc(sizeof head + bytes);
    if (text == NULL) {
        (void)core_err_set(-ENOMEM, "no memory to call rank %u", rank);
        return coll_peers_fail(peers, -ENOMEM); /* other ranks may have begun the call */
    }
    memcpy(text, &head, sizeof head);
    memcpy(text + sizeof head, arguments, bytes);
    const int rc = coll_peers_send(peers, rank, text, sizeof head + bytes);
    free(text);
    return rc;
}

static int send_batch(struct coll_peers *peers, uint32_t rank, const struct model_batch *batch)
{
    const int32_t *const arrays[BATCH_ARRAYS] = {batch->ids, batch->labels, batch->positions,
                                                 batch->starts};
    struct batch_head head = {.rows = batch->rows, .length = batch->length};
    for (int i = 0; i < BATCH_ARRAYS; i++) {
        head.has[i] = arrays[i] != NULL;
    }
    int rc = coll_peers_send(peers, rank, &head, sizeof head);
    for (int i = 0; rc == 0 && i < BATCH_ARRAYS; i++) {
        if (head.has[i]) {
            rc = coll_peers_send(peers, rank, arrays[i],
                                 (size_t)(head.rows * head.length) * sizeof *arrays[i]);
        }
    }
    return rc;
}

int run_remote_feed(struct coll_peers *peers, uint32_t rank, const struct model_batch *batches,
                    uint32_t count)
{
    int rc = run_remote_call(peers, rank, RUN_CALL_FEED, &count, sizeof count);
    for (uint32_t i = 0; rc == 0 && i < count; i++) {
        rc = send_batch(peers, rank, &batches[i]);
    }
    return rc;
}

int run_remote_reply(struct coll_peers *peers, uint32_t rank, struct run_reply *out)
{
    struct run_reply reply;
    size_t bytes = 0;
    int rc = coll_peers_receive(peers, rank, &reply, sizeof reply, &bytes);
    if (rc != 0) {
        return rc;
    }
    if (bytes != sizeof reply) {
        return core_err_set(-EPROTO, "rank %u sent a reply of %zu bytes; expected %zu", rank, bytes,
                            sizeof reply);
    }
    reply.message[sizeof reply.message - 1] = '\0';
    *out = reply;
    return reply.code == 0 ? 0
                           : core_err_adopt(reply.code < 0 ? reply.code : -EPROTO, reply.message);
}

static uint64_t grains(uint64_t bytes)
{
    return core_round_up(bytes, PIECE_GRAIN);
}

static struct store_arrays streams_of(void *memory, const struct piece_head *head)
{
    struct store_arrays arrays = {{NULL}};
    char *at = (char *)memory + PIECE_GRAIN;
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        arrays.at[s] = head->bytes[s] > 0 ? at : NULL;
        at += grains(head->bytes[s]);
    }
    return arrays;
}

int run_remote_pieces(struct coll_peers *peers, uint32_t rank, void *memory, run_take_piece *take,
                      void *context)
{
    struct core_err first = core_err_keep(0);
    struct piece_head head;
    struct run_reply reply;
    do {
        size_t bytes = 0;
        int rc = coll_peers_receive(peers, rank, memory, RUN_PIECE_BYTES, &bytes);
        if (rc != 0) {
            return rc;
        }
        memcpy(&head, memory, sizeof head);
        if (head.count > 0 && first.code == 0) {
            const struct store_arrays arrays = streams_of(memory, &head);
            first = core_err_keep(take(context, head.first, head.count, &arrays));
        }
    } while (head.count > 0);
    return core_err_first(&first, run_remote_reply(peers, rank, &reply));
}

int run_remote_save(struct coll_peers *peers, uint32_t rank, const struct run_remote_save *save,
                    const char *folder, const void *application)
{
    const size_t chars = strlen(folder) + 1;
    const size_t bytes = sizeof *save + chars + save->application_bytes;
    char *text = malloc(bytes);
    if (text == NULL) {
        return core_err_set(-ENOMEM, "no memory to call rank %u", rank);
    }
    memcpy(text, save, sizeof *save);
    memcpy(text + sizeof *save, folder, chars);
    if (save->application_bytes > 0) {
        memcpy(text + sizeof *save + chars, application, save->application_bytes);
    }
    const int rc = run_remote_call(peers, rank, RUN_CALL_SAVE, text, bytes);
    free(text);
    return rc;
}

/* ---- the arguments of CREATE: structs, then strings ---- */

/* The receiver replaces pointers in these structs. */
struct job_head {
    struct run_options options;
    struct run_rates rates;
    double drive_bytes[STORE_PATHS_MAX];
    uint64_t run;
    struct model_options model_options;
    struct model_lora_options lora;
    uint32_t has_io, has_checkpoint, has_adapter, has_lora;
};

struct text {
    char *at; /* NULL: bytes are only counted */
    size_t bytes;
};

static void add_text(struct text *text, const char *string)
{
    const size_t bytes = strlen(string) + 1;
    if (text->at != NULL) {
        memcpy(text->at + text->bytes, string, bytes);
    }
    text->bytes += bytes;
}

static void add_names(struct text *text, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        add_text(text, names[i]);
    }
}

/* None if a PEFT folder has the options. */
static struct model_lora_options lora_of(const struct run_remote_job *job)
{
    const struct model_lora_options none = {.rank = 0};
    return job->model_options->lora != NULL && job->adapter == NULL ? *job->model_options->lora
                                                                    : none;
}

static void add_texts(struct text *text, const struct run_remote_job *job)
{
    const struct run_options *options = job->options;
    add_text(text, options->device);
    add_text(text, options->io != NULL ? options->io : "");
    add_text(text, job->model);
    add_text(text, job->checkpoint != NULL ? job->checkpoint : "");
    add_text(text, job->adapter != NULL ? job->adapter : "");
    for (unsigned i = 0; i < options->store_count; i++) {
        add_text(text, options->stores[i].directory);
    }
    const struct model_options *model = job->model_options;
    const struct model_lora_options lora = lora_of(job);
    add_names(text, model->frozen, model->frozen_count);
    add_names(text, lora.targets, lora.target_count);
    add_names(text, lora.saved, lora.saved_count);
}

int run_remote_create(struct coll_peers *peers, uint32_t rank, const struct run_remote_job *job)
{
    struct text text = {.at = NULL, .bytes = sizeof(struct job_head)};
    const struct model_lora_options lora = lora_of(job);
    const size_t names = job->model_options->frozen_count + lora.target_count + lora.saved_count;
    add_texts(&text, job);
    if (names > RUN_NAMES_MAX || text.bytes + sizeof(struct call_head) > RUN_PIECE_BYTES) {
        return core_err_set(-E2BIG,
                            "%zu names of tensors that are frozen, adapted or saved are too many "
                            "for several processes",
                            names);
    }
    char *memory = calloc(1, text.bytes);
    if (memory == NULL) {
        return core_err_set(-ENOMEM, "no memory to call rank %u", rank);
    }
    struct job_head head = {.options = *job->options,
                            .rates = *job->rates,
                            .run = job->run,
                            .model_options = *job->model_options,
                            .lora = lora,
                            .has_io = job->options->io != NULL,
                            .has_checkpoint = job->checkpoint != NULL,
                            .has_adapter = job->adapter != NULL,
                            .has_lora = job->model_options->lora != NULL};
    memcpy(head.drive_bytes, job->drive_bytes, sizeof head.drive_bytes);
    head.options.rank = rank;
    memcpy(memory, &head, sizeof head);
    text = (struct text){.at = memory, .bytes = sizeof head};
    add_texts(&text, job);
    const int rc = run_remote_call(peers, rank, RUN_CALL_CREATE, memory, text.bytes);
    free(memory);
    return rc;
}

/* Returns the next string, or NULL. */
static const char *take_text(const char **at, const char *end)
{
    const char *string = *at;
    const char *zero = string < end ? memchr(string, '\0', (size_t)(end - string)) : NULL;
    *at = zero != NULL ? zero + 1 : end;
    return zero != NULL ? string : NULL;
}

/* Returns the last name, or `last` if there is none. */
static const char *take_names(struct run_remote_made *out, size_t *used, size_t count,
                              const char *const **list, const char **at, const char *end,
                              const char *last)
{
    *list = count > 0 ? out->names + *used : NULL;
    for (size_t i = 0; i < count; i++) {
        last = out->names[(*used)++] = take_text(at, end);
    }
    return last;
}

int run_remote_read_job(void *memory, size_t bytes, struct run_remote_made *out)
{
    struct job_head head;
    const char *at = (const char *)memory + sizeof head;
    const char *end = (const char *)memory + bytes;
    size_t names = 0;
    if (bytes < sizeof head) {
        return core_err_set(-EPROTO, "a received job of %zu bytes is too short", bytes);
    }
    memcpy(&head, memory, sizeof head);
    *out = (struct run_remote_made){.options = head.options,
                                    .rates = head.rates,
                                    .run = head.run,
                                    .model_options = head.model_options,
                                    .lora = head.lora};
    memcpy(out->drive_bytes, head.drive_bytes, sizeof out->drive_bytes);
    out->options.device = take_text(&at, end);
    out->options.io = take_text(&at, end);
    out->model = take_text(&at, end);
    out->checkpoint = take_text(&at, end);
    out->adapter = take_text(&at, end);
    out->options.io = head.has_io ? out->options.io : NULL;
    out->checkpoint = head.has_checkpoint ? out->checkpoint : NULL;
    out->adapter = head.has_adapter ? out->adapter : NULL;
    out->model_options.frozen_as = NULL;
    out->model_options.lora = head.has_lora ? &out->lora : NULL;
    out->options.cache = (struct run_cache){.folder = NULL};
    out->options.topology = NULL;
    const char *last = out->model;
    for (unsigned i = 0; i < out->options.store_count; i++) {
        last = out->options.stores[i].directory = take_text(&at, end);
    }
    last = take_names(out, &names, out->model_options.frozen_count, &out->model_options.frozen, &at,
                      end, last);
    last = take_names(out, &names, out->lora.target_count, &out->lora.targets, &at, end, last);
    last = take_names(out, &names, out->lora.saved_count, &out->lora.saved, &at, end, last);
    return last != NULL ? 0 : core_err_set(-EPROTO, "a received job has no names at its end");
}

/* ---- rates of collectives ---- */

/* Waits for every called process, even after an error. */
static int measure_once(struct coll_peers *peers, const struct run_remote_measure *with,
                        struct plan_rates *out)
{
    const struct run_coll_ranks ranks = {
        .count = 1, .world = coll_peers_world(peers), .within = with->within, .peers = peers};
    struct core_err first = core_err_keep(0);
    uint32_t called = 1;
    while (first.code == 0 && called < ranks.world) {
        first = core_err_keep(run_remote_call(peers, called, RUN_CALL_MEASURE, with, sizeof *with));
        called += first.code == 0;
    }
    if (first.code == 0) {
        first = core_err_keep(run_measure_coll(&ranks, with->bytes, out));
    }
    for (uint32_t r = 1; r < called; r++) {
        struct run_reply reply;
        const int rc = run_remote_reply(peers, r, &reply);
        first = first.code != 0 ? first : core_err_keep(rc);
    }
    return core_err_first(&first, 0);
}

int run_remote_measure(struct coll_peers *peers, struct run_remote_measure *with,
                       struct plan_rates *out)
{
    /* Arrays of the second measurement are at most as large as what moves in `seconds`. */
    static const uint64_t bytes_first = UINT64_C(1) << 20;
    static const double seconds = 0.05;
    const uint64_t most = with->bytes;
    with->bytes = most < bytes_first ? most : bytes_first;
    int rc = measure_once(peers, with, out);
    const double bytes = rc == 0 ? out->coll_bytes * seconds : 0;
    if (bytes > (double)with->bytes && most > with->bytes) {
        with->bytes = bytes < (double)most ? (uint64_t)bytes : most;
        rc = measure_once(peers, with, out);
    }
    return rc;
}

/* ---- the other processes ---- */

int run_remote_next(struct coll_peers *peers, void *memory, enum run_call *call, size_t *bytes)
{
    struct call_head head;
    size_t got = 0;
    int rc = coll_peers_receive(peers, 0, memory, RUN_PIECE_BYTES, &got);
    if (rc != 0) {
        return rc;
    }
    if (got >= sizeof head) {
        memcpy(&head, memory, sizeof head);
    }
    if (got < sizeof head || got - sizeof head != head.bytes) {
        return core_err_set(-EPROTO, "a received job has the wrong length, %zu bytes", got);
    }
    memmove(memory, (char *)memory + sizeof head, head.bytes);
    *call = (enum run_call)head.call;
    *bytes = head.bytes;
    return 0;
}

int run_remote_answer(struct coll_peers *peers, const struct run_reply *reply)
{
    return coll_peers_send(peers, 0, reply, sizeof *reply);
}

/* Drops an array that does not fit, so that the next message is the expected one. */
static int receive_array(struct coll_peers *peers, int32_t *to, size_t bytes, bool fits)
{
    size_t got = 0;
    if (fits) {
        return coll_peers_receive(peers, 0, to, bytes, &got);
    }
    void *dropped = malloc(bytes);
    const int rc = dropped != NULL ? coll_peers_receive(peers, 0, dropped, bytes, &got)
                                   : core_err_set(-ENOMEM, "no memory for a micro-batch");
    free(dropped);
    return rc;
}

int run_remote_batch(struct coll_peers *peers, void *memory, size_t room, struct model_batch *out)
{
    const int32_t *arrays[BATCH_ARRAYS] = {NULL};
    struct batch_head head;
    size_t got = 0;
    int rc = coll_peers_receive(peers, 0, &head, sizeof head, &got);
    if (rc != 0) {
        return rc;
    }
    const size_t bytes = (size_t)(head.rows * head.length) * sizeof(int32_t);
    const bool fits = BATCH_ARRAYS * bytes <= room;
    for (int i = 0; rc == 0 && i < BATCH_ARRAYS; i++) {
        int32_t *to = (int32_t *)(void *)((char *)memory + (size_t)i * bytes);
        if (head.has[i]) {
            rc = receive_array(peers, to, bytes, fits);
            arrays[i] = to;
        }
    }
    *out = (struct model_batch){.rows = head.rows,
                                .length = head.length,
                                .ids = fits ? arrays[0] : NULL,
                                .labels = arrays[1],
                                .positions = arrays[2],
                                .starts = arrays[3]};
    return rc;
}

static void stream_bytes(const struct plan_format *format, uint64_t count,
                         uint64_t bytes[STORE_STREAM_COUNT])
{
    const uint64_t scales = format->q8_block > 0
                                ? (count + format->q8_block - 1) / format->q8_block * sizeof(float)
                                : 0;
    bytes[STORE_STREAM_WEIGHTS] = count * format->weight_bytes;
    bytes[STORE_STREAM_MASTER] = count * format->master_bytes;
    bytes[STORE_STREAM_M] = count * format->m_bytes;
    bytes[STORE_STREAM_V] = count * format->v_bytes;
    bytes[STORE_STREAM_M_SCALES] = bytes[STORE_STREAM_V_SCALES] = scales;
}

static int send_piece(struct coll_peers *peers, uint32_t to, void *memory, struct piece_head *head,
                      const struct store_arrays *arrays, const uint64_t skipped[STORE_STREAM_COUNT])
{
    char *at = (char *)memory + PIECE_GRAIN;
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        head->bytes[s] = arrays->at[s] != NULL ? head->bytes[s] : 0;
        if (head->bytes[s] > 0) {
            memcpy(at, arrays->at[s] + skipped[s], head->bytes[s]);
        }
        at += grains(head->bytes[s]);
    }
    memcpy(memory, head, sizeof *head);
    return coll_peers_send(peers, to, memory, (size_t)(at - (char *)memory));
}

int run_remote_send_range(struct coll_peers *peers, void *memory, const struct plan_format *format,
                          const struct store_arrays *arrays, uint64_t first, uint64_t count)
{
    uint64_t done = 0;
    int rc = 0;
    do {
        const uint64_t left = count - done;
        uint64_t skipped[STORE_STREAM_COUNT];
        struct piece_head head = {.first = first + done,
                                  .count = left < PIECE_ELEMENTS ? left : PIECE_ELEMENTS};
        stream_bytes(format, done, skipped);
        stream_bytes(format, head.count, head.bytes);
        rc = send_piece(peers, 0, memory, &head, arrays, skipped);
        done += head.count;
    } while (rc == 0 && done < count);
    return rc;
}

static int check_sums(uint64_t elements)
{
    const uint64_t most = RUN_PIECE_BYTES / (STORE_STREAM_COUNT + 1) / sizeof(uint64_t);
    return elements <= most * PLAN_CUT_ELEMENTS
               ? 0
               : core_err_set(-EFBIG,
                              "a block of %" PRIu64
                              " elements is too large for its checksums to be sent to another "
                              "process; the maximum is %" PRIu64,
                              elements, most * PLAN_CUT_ELEMENTS);
}

static int send_sums(struct coll_peers *peers, uint32_t to, void *memory,
                     const struct store_arrays *sums, struct plan_span span)
{
    static const uint64_t none[STORE_STREAM_COUNT] = {0};
    const uint64_t cuts = (span.count + PLAN_CUT_ELEMENTS - 1) / PLAN_CUT_ELEMENTS;
    const uint64_t bytes = cuts * sizeof(uint64_t);
    struct piece_head head = {.first = span.first, .count = span.count};
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        head.bytes[s] = bytes;
    }
    return send_piece(peers, to, memory, &head, sums, none);
}

int run_remote_send_sums(struct coll_peers *peers, void *memory, const struct store_arrays *sums,
                         uint64_t first, uint64_t count)
{
    const int rc = check_sums(count);
    return rc != 0 ? rc : send_sums(peers, 0, memory, sums, (struct plan_span){first, count});
}

int run_remote_sums(struct coll_peers *peers, uint32_t rank, void *memory, uint32_t block,
                    const struct store_arrays *sums, uint64_t elements)
{
    int rc = check_sums(elements);
    if (rc == 0) {
        rc = run_remote_call(peers, rank, RUN_CALL_SAVE_SUMS, &block, sizeof block);
    }
    return rc != 0 ? rc : send_sums(peers, rank, memory, sums, (struct plan_span){0, elements});
}

int run_remote_receive_sums(struct coll_peers *peers, void *memory, struct store_arrays *sums)
{
    struct piece_head head;
    size_t bytes = 0;
    const int rc = coll_peers_receive(peers, 0, memory, RUN_PIECE_BYTES, &bytes);
    if (rc != 0) {
        return rc;
    }
    memcpy(&head, memory, sizeof head);
    *sums = streams_of(memory, &head);
    return 0;
}
