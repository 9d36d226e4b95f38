/* feed.c: a thread prepares batches in a ring of slots. The thread fills slot prepared % ahead; the
 * caller reads slot taken % ahead. */
#include "tools/text/data/feed.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/bell.h"
#include "core/base/charge.h"
#include "core/base/clock.h"
#include "core/base/cpus.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/thread.h"
#include "tools/text/data/batches.h"
#include "tools/text/data/chat.h"

enum { AHEAD = 4 };

static const int64_t batch_tokens_max = INT64_C(1) << 30;

struct slot {
    struct text_batch batch;
    int32_t *tokens; /* owned: ids, labels; if packed, positions and starts */
    int rc;          /* 1: a batch; 0: the end; -errno */
    char message[CORE_ERR_MESSAGE_BYTES];
};

struct text_feed {
    struct text_feed_options options;
    struct text_batches *batches;      /* owned; used only by the thread while it runs */
    struct slot slots[TEXT_AHEAD_MAX]; /* [options.ahead] */
    const struct core_log *log;        /* borrowed: the caller's, or `quiet` */
    struct core_log quiet;             /* the caller's, limited to errors */
    struct core_bell bell;
    /* written by the thread; release pairs with the acquire of the caller */
    _Atomic uint64_t prepared;
    /* written by the caller; release pairs with the acquire of the thread */
    _Atomic uint64_t taken;
    _Atomic bool stops;
    bool runs;
    bool holds; /* the caller uses a batch */
    pthread_t thread;
    int64_t wait_ns;
};

static int check_options(const struct text_feed_options *options)
{
    const struct {
        bool wrong;
        const char *why;
    } rules[] = {
        {options->files_count == 0, "no data was given"},
        {options->seq_len < 2 || options->seq_len > 1 << 26, "--seq-len must be 2 to 67108864"},
        {options->batch_rows < 1 || options->batch_rows > 1 << 20, "--batch must be 1 to 1048576"},
        {options->length_room < 0 || options->length_room > options->seq_len,
         "rows must have at most --seq-len tokens"},
        {options->length_multiple < 0 || options->length_multiple > options->seq_len,
         "length_multiple must be 0 to --seq-len"},
        {options->ranks > 0 && options->rank >= options->ranks,
         "the rank must be below the number of ranks"},
        {options->pairs && options->batch_rows % 2 != 0, "a pair needs two rows of a batch"},
        {options->pairs && (options->pack || options->split),
         "--loss dpo compares whole answers: --pack and --split cannot be used"},
        {options->pairs && options->train_on == TEXT_TRAIN_ALL,
         "--loss dpo compares answers without their prompts: --train-on all cannot be used"},
        {options->threads > TEXT_THREADS_MAX, "at most 64 threads can tokenize rows"},
        {options->ahead > TEXT_AHEAD_MAX, "at most 1024 batches can be prepared ahead"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (rules[i].wrong) {
            return core_err_set(-EINVAL, "%s", rules[i].why);
        }
    }
    if (options->batch_rows * text_batches_room(options) > batch_tokens_max) {
        return core_err_set(-EINVAL, "a micro-batch has more than 2^30 tokens");
    }
    /* Checked here because rows of ids never use the format. */
    return text_chat_check_format(options->chat_format);
}

static struct core_budget *shared_of(const struct text_feed_options *options)
{
    return options->memory != NULL ? &options->memory->shared : NULL;
}

static int fill_slot(struct text_feed *feed, struct slot *slot)
{
    slot->rc = text_batches_next(feed->batches, slot->tokens, &slot->batch);
    if (slot->rc < 0) {
        snprintf(slot->message, sizeof slot->message, "%s", core_err_message());
    }
    return slot->rc;
}

static void *run_thread(void *argument)
{
    struct text_feed *feed = argument;
    core_log_bind(feed->log);
    core_charge_bind(shared_of(&feed->options));
    int rc = 1;
    for (uint64_t made = 0; rc == 1; made++) {
        for (;;) {
            const uint32_t seen = core_bell_look(&feed->bell);
            if (atomic_load_explicit(&feed->stops, memory_order_acquire)) {
                return NULL;
            }
            if (made - atomic_load_explicit(&feed->taken, memory_order_acquire) <
                feed->options.ahead) {
                break;
            }
            if (!text_batches_ahead(feed->batches)) {
                core_bell_sleep(&feed->bell, seen, -1);
            }
        }
        rc = fill_slot(feed, &feed->slots[made % feed->options.ahead]);
        atomic_store_explicit(&feed->prepared, made + 1, memory_order_release);
        core_bell_ring(&feed->bell);
    }
    return NULL;
}

static int alloc_slots(struct text_feed *feed)
{
    const size_t arrays = feed->options.pack ? 4 : 2;
    const size_t tokens = (size_t)feed->options.batch_rows *
                          (size_t)text_batches_room(&feed->options);
    for (unsigned i = 0; i < feed->options.ahead; i++) {
        feed->slots[i].tokens = core_charge_alloc(arrays * tokens * sizeof(int32_t));
        if (feed->slots[i].tokens == NULL) {
            return core_err_set(-ENOMEM, "no memory for %u batches of %zu tokens",
                                feed->options.ahead, tokens);
        }
    }
    return 0;
}

static int open_feed(const struct text_feed_options *options, const struct text_position *from,
                     struct text_feed **out)
{
    int rc = check_options(options);
    if (rc != 0) {
        return rc;
    }
    struct text_feed *feed = core_charge_zeroed(1, sizeof *feed);
    if (feed == NULL) {
        return core_err_set(-ENOMEM, "no memory to feed data");
    }
    feed->options = *options;
    feed->options.ahead = options->ahead > 0 ? options->ahead : AHEAD;
    feed->log = core_log_bound();
    if (options->quiet && feed->log != NULL) {
        feed->quiet = *feed->log;
        feed->quiet.level = CORE_LOG_ERROR;
        feed->log = &feed->quiet;
    }
    core_bell_init(&feed->bell);
    rc = text_batches_open(&feed->options, from, &feed->batches);
    if (rc != 0 || (rc = alloc_slots(feed)) != 0) {
        goto fail;
    }
    const int failed = core_thread_start(&feed->thread, run_thread, feed);
    if (failed != 0) {
        rc = core_err_set(-failed, "cannot start the thread that prepares data: %s",
                          strerror(failed));
        goto fail;
    }
    feed->runs = true;
    *out = feed;
    return 0;
fail:
    text_feed_close(feed);
    return rc;
}

int text_feed_open(const struct text_feed_options *options, const struct text_position *from,
                   struct text_feed **out)
{
    struct core_budget *before = core_charge_bind(shared_of(options));
    const int rc = open_feed(options, from, out);
    core_charge_bind(before);
    return rc;
}

void text_feed_close(struct text_feed *feed)
{
    if (feed == NULL) {
        return;
    }
    if (feed->runs) {
        atomic_store_explicit(&feed->stops, true, memory_order_release);
        core_bell_ring(&feed->bell);
        pthread_join(feed->thread, NULL);
    }
    text_batches_close(feed->batches);
    for (unsigned i = 0; i < feed->options.ahead; i++) {
        core_charge_free(feed->slots[i].tokens);
    }
    core_charge_free(feed);
}

static void wait_for(struct text_feed *feed, uint64_t index)
{
    int64_t began = -1;
    for (;;) {
        const uint32_t seen = core_bell_look(&feed->bell);
        if (atomic_load_explicit(&feed->prepared, memory_order_acquire) > index) {
            break;
        }
        began = began < 0 ? core_clock_now_ns() : began;
        core_bell_sleep(&feed->bell, seen, -1);
    }
    feed->wait_ns += began >= 0 && index > 0 ? core_clock_now_ns() - began : 0;
}

int text_feed_next(struct text_feed *feed, struct text_batch *out)
{
    uint64_t taken = atomic_load_explicit(&feed->taken, memory_order_relaxed);
    if (feed->holds) {
        atomic_store_explicit(&feed->taken, ++taken, memory_order_release);
        core_bell_ring(&feed->bell);
        feed->holds = false;
    }
    wait_for(feed, taken);
    const struct slot *slot = &feed->slots[taken % feed->options.ahead];
    if (slot->rc < 0) {
        return core_err_adopt(slot->rc, slot->message);
    }
    feed->holds = slot->rc == 1;
    *out = slot->batch;
    return slot->rc;
}

int64_t text_feed_wait_ns(const struct text_feed *feed)
{
    return feed->wait_ns;
}

int text_feed_now(int64_t *out)
{
    const char *fixed = getenv("SOURCE_DATE_EPOCH");
    char *end = NULL;
    struct tm parts;
    time_t now = time(NULL);
    if (fixed == NULL || fixed[0] == '\0') {
        *out = now + (localtime_r(&now, &parts) != NULL ? parts.tm_gmtoff : 0);
        return 0;
    }
    errno = 0;
    const long long seconds = strtoll(fixed, &end, 10);
    now = (time_t)seconds;
    if (errno != 0 || *end != '\0' || gmtime_r(&now, &parts) == NULL) {
        return core_err_set(
            -EINVAL, "SOURCE_DATE_EPOCH: \"%.60s\" is not a number of seconds since 1970", fixed);
    }
    *out = seconds;
    return 0;
}

unsigned text_feed_threads(int64_t asked)
{
    struct core_cpus cpus;
    int64_t count = asked;
    if (asked <= 0) {
        count = core_cpus_allowed(&cpus) == 0 ? core_cpus_count(&cpus) : 1;
    }
    return count > TEXT_THREADS_MAX ? TEXT_THREADS_MAX : count < 1 ? 1 : (unsigned)count;
}
