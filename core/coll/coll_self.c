/* coll_self.c: a world of one rank: a collective copies, or does nothing if it is in place;
 * COLL_INT4 is decoded. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/coll/backend.h"

static int self_open(const struct coll_options *options, struct coll *base, struct coll **out)
{
    (void)options;
    if (base->world != 1) {
        return core_err_set(-EINVAL, "self connects one rank, not %u", base->world);
    }
    struct coll *coll = calloc(1, sizeof *coll);
    if (coll == NULL) {
        return core_err_set(-ENOMEM, "no memory for a rank");
    }
    *coll = *base;
    *out = coll;
    return 0;
}

static void self_close(struct coll *coll)
{
    free(coll);
}

static int self_run(struct coll *coll, const struct coll_work *work)
{
    (void)coll;
    if (work->type == COLL_INT4) {
        const struct coll_terms terms = {.from = &work->from, .ranks = 1, .count = work->count};
        coll_work_sum(work, &terms, work->to);
    } else if (work->count > 0 && work->to != work->from) {
        memmove(work->to, work->from, work->count * coll_type_bytes(work->type));
    }
    return 0;
}

static int self_abort(struct coll *coll, int code)
{
    (void)coll;
    return code;
}

const struct coll_backend coll_backend_self = {
    .kind = "self",
    .open = self_open,
    .close = self_close,
    .run = self_run,
    .abort = self_abort,
};
