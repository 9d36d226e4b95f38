/* contract.c: work of ranks, and the right results, for any back end. */
#include "tests/coll/contract.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/half.h"
#include "core/coll/codes.h"
#include "tests/harness/test.h"

/* Returns the bits of an element: a byte, or a number that fp16 can hold and whose sums depend on
 * the order. */
static uint32_t word(enum coll_type type, unsigned rank, uint64_t i)
{
    uint32_t hash = (uint32_t)(i * 2654435761U + rank * 40503U) >> 7;
    float value = (float)((int)(hash % 20011) - 10005) * 0.37F;
    switch (type) {
    case COLL_F32: return core_f32_bits(value);
    case COLL_BF16: return core_f32_to_bf16(value);
    case COLL_FP16: return core_f32_to_fp16(value);
    case COLL_F64:
    case COLL_BYTE:
    case COLL_INT4:
    case COLL_TYPES: break;
    }
    return hash & 0xff;
}

static void put(enum coll_type type, void *array, uint64_t i, uint32_t bits)
{
    if (coll_type_bytes(type) == 4) {
        ((uint32_t *)array)[i] = bits;
    } else if (coll_type_bytes(type) == 2) {
        ((uint16_t *)array)[i] = (uint16_t)bits;
    } else {
        ((unsigned char *)array)[i] = (unsigned char)bits;
    }
}

static uint32_t get(enum coll_type type, const void *array, uint64_t i)
{
    if (coll_type_bytes(type) == 4) {
        return ((const uint32_t *)array)[i];
    }
    if (coll_type_bytes(type) == 2) {
        return ((const uint16_t *)array)[i];
    }
    return ((const unsigned char *)array)[i];
}

static float as_float(enum coll_type type, uint32_t bits)
{
    return type == COLL_F32    ? core_f32_from_bits(bits)
           : type == COLL_BF16 ? core_bf16_to_f32((uint16_t)bits)
                               : core_fp16_to_f32((uint16_t)bits);
}

static uint32_t expected_sum(const struct run *run, uint64_t i)
{
    float sum = as_float(run->type, word(run->type, 0, i));
    for (unsigned r = 1; r < run->world; r++) {
        sum += as_float(run->type, word(run->type, r, i));
    }
    return run->type == COLL_F32    ? core_f32_bits(sum)
           : run->type == COLL_BF16 ? core_f32_to_bf16(sum)
                                    : core_f32_to_fp16(sum);
}

static uint64_t border(const struct run *run, unsigned r)
{
    return run->borders != NULL ? run->borders[r] : coll_border(run->count, run->world, r);
}

int contract_all(struct rank *rank)
{
    const struct run *run = rank->run;
    uint64_t begin = border(run, rank->index);
    size_t type_bytes = coll_type_bytes(run->type);
    bool sums = run->type != COLL_BYTE;
    static const enum coll_op ops[] = {COLL_GATHER, COLL_REDUCE_SCATTER, COLL_ALL_REDUCE,
                                       COLL_BROADCAST, COLL_BARRIER};
    for (int in_place = 0; in_place < 2; in_place++) {
        for (size_t k = 0; k < 5; k++) {
            uint32_t *from = rank->from;
            for (uint64_t i = 0; i < run->count; i++) {
                put(run->type, from, i, word(run->type, rank->index, i));
            }
            bool part_from = ops[k] == COLL_GATHER;
            bool part_to = ops[k] == COLL_REDUCE_SCATTER;
            unsigned char *to = (unsigned char *)(in_place ? from : rank->results[k]);
            struct coll_command command = {
                .op = ops[k],
                .type = run->type,
                .root = run->world / 2,
                .from = (unsigned char *)from + (part_from ? begin * type_bytes : 0),
                .to = to + (part_to ? begin * type_bytes : 0),
                .count = run->count,
                .borders = run->borders,
            };
            if (run->delay == rank->index) {
                pause_ms(2);
            }
            if (!sums && (ops[k] == COLL_REDUCE_SCATTER || ops[k] == COLL_ALL_REDUCE)) {
                continue;
            }
            int rc = submit_wait(rank->coll, &command);
            if (rc != 0) {
                return rc;
            }
            if (in_place && ops[k] != COLL_BARRIER) {
                uint64_t first = part_to ? begin : 0;
                uint64_t last = part_to ? border(run, rank->index + 1) : run->count;
                for (uint64_t i = first; i < last; i++) {
                    if (get(run->type, from, i) != get(run->type, rank->results[k], i)) {
                        return core_err_set(-EBADMSG, "in place differs at %zu", (size_t)i);
                    }
                }
            }
        }
    }
    return 0;
}

void contract_check(const struct rank *rank)
{
    const struct run *run = rank->run;
    unsigned owner = 0;
    if (rank->rc != 0) {
        test_note("rank %u: %s", rank->index, rank->message);
    }
    check_int(rank->rc, ==, 0);
    for (uint64_t i = 0; i < run->count; i++) {
        while (i >= border(run, owner + 1)) {
            owner++;
        }
        check_uint(get(run->type, rank->results[0], i), ==, word(run->type, owner, i));
        check_uint(get(run->type, rank->results[3], i), ==, word(run->type, run->world / 2, i));
        if (run->type == COLL_BYTE) {
            continue;
        }
        check_uint(get(run->type, rank->results[2], i), ==, expected_sum(run, i));
        if (owner == rank->index) {
            check_uint(get(run->type, rank->results[1], i), ==, expected_sum(run, i));
        }
    }
}

void contract_check_traffic(const struct rank *rank)
{
    const struct run *run = rank->run;
    const unsigned r = rank->index;
    const struct traffic *traffic = &rank->traffic;
    const uint64_t type_bytes = coll_type_bytes(run->type);
    const uint64_t part = border(run, r + 1) - border(run, r);
    check_uint(traffic->received_bytes[COLL_GATHER], ==, 2 * type_bytes * (run->count - part));
    check_uint(traffic->received_bytes[COLL_BROADCAST], ==,
               r == run->world / 2 ? 0 : 2 * type_bytes * run->count);
    check_uint(traffic->received_bytes[COLL_BARRIER], ==, 0);
    if (run->type != COLL_BYTE) {
        check_uint(traffic->commands, ==, 10);
        check_uint(traffic->received_bytes[COLL_REDUCE_SCATTER], ==,
                   2 * type_bytes * (run->world - 1) * part);
    }
}

struct numbers {
    enum coll_type type;
    uint64_t count;
    void *array;
    unsigned char *codes;
};

static void make_codes(void *context)
{
    const struct numbers *numbers = context;
    coll_codes_encode(numbers->type, numbers->array, numbers->count, numbers->codes);
}

static struct numbers numbers_of(const struct run *run, unsigned rank)
{
    const size_t width = coll_type_bytes(run->type);
    const uint64_t groups = coll_codes_groups(run->count);
    struct numbers numbers = {
        .type = run->type,
        .count = run->count,
        .array = malloc(run->count * width + 1),
        .codes = malloc(groups * coll_type_bytes(COLL_INT4) + 1),
    };
    for (uint64_t i = 0; i < run->count; i++) {
        put(run->type, numbers.array, i, word(run->type, rank, i));
    }
    return numbers;
}

static void free_numbers(struct numbers *numbers)
{
    free(numbers->array);
    free(numbers->codes);
}

/* Decodes a rank's group and adds it to the sums, or with `set` starts the sums. */
static void add_group(const struct numbers *numbers, uint64_t group, bool set, float *sums)
{
    float next[COLL_CODES];
    coll_codes_decode(numbers->codes + group * coll_type_bytes(COLL_INT4), next);
    for (size_t i = 0; i < COLL_CODES; i++) {
        sums[i] = set ? next[i] : sums[i] + next[i];
    }
}

/* Compares `to` with numbers [first, first + count) of the sum. */
static int check_codes(const struct run *run, uint64_t first, uint64_t count, const void *to)
{
    struct numbers all[WORLD_MAX];
    int rc = 0;
    for (unsigned r = 0; r < run->world; r++) {
        all[r] = numbers_of(run, r);
        make_codes(&all[r]);
    }
    for (uint64_t done = 0; done < count; done++) {
        static _Thread_local float sums[COLL_CODES];
        for (unsigned r = 0; done % COLL_CODES == 0 && r < run->world; r++) {
            add_group(&all[r], (first + done) / COLL_CODES, r == 0, sums);
        }
        const float sum = sums[done % COLL_CODES];
        const uint32_t expected = run->type == COLL_F32    ? core_f32_bits(sum)
                                  : run->type == COLL_BF16 ? core_f32_to_bf16(sum)
                                                           : core_f32_to_fp16(sum);
        if (rc == 0 && get(run->type, to, done) != expected) {
            rc = core_err_set(-EBADMSG, "number %zu differs", (size_t)(first + done));
        }
    }
    for (unsigned r = 0; r < run->world; r++) {
        free_numbers(&all[r]);
    }
    return rc;
}

int contract_codes(struct rank *rank)
{
    const struct run *run = rank->run;
    const uint64_t groups = coll_codes_groups(run->count);
    const size_t width = coll_type_bytes(run->type);
    uint64_t parts[WORLD_MAX + 1];
    for (unsigned r = 0; r <= run->world; r++) {
        parts[r] = run->borders != NULL ? coll_codes_groups(run->borders[r])
                                        : coll_border(groups, run->world, r);
    }
    const uint64_t first = parts[rank->index] * COLL_CODES;
    const uint64_t end = parts[rank->index + 1] * COLL_CODES;
    const uint64_t count = end <= first ? 0 : (end < run->count ? end : run->count) - first;
    struct numbers own = numbers_of(run, rank->index);
    unsigned char *to = malloc(count * width + 1);
    memset(to, 0xa5, count * width + 1);
    const struct coll_command command = {
        .op = COLL_REDUCE_SCATTER,
        .type = COLL_INT4,
        .from = own.codes,
        .to = to,
        .count = groups,
        .borders = run->borders != NULL ? parts : NULL,
        .sum_type = run->type,
        .sum_count = count,
        .prepare = make_codes,
        .context = &own,
    };
    if (run->delay == rank->index) {
        pause_ms(2);
    }
    int rc = submit_wait(rank->coll, &command);
    if (rc == 0) {
        rc = check_codes(run, first, count, to);
    }
    if (rc == 0 && to[count * width] != 0xa5) {
        rc = core_err_set(-EBADMSG, "wrote more than %zu numbers", (size_t)count);
    }
    const struct traffic traffic = traffic_of(rank->coll);
    const uint64_t received = 132 * (run->world - 1) *
                              (parts[rank->index + 1] - parts[rank->index]);
    if (rc == 0 && traffic.received_bytes[COLL_REDUCE_SCATTER] != received) {
        rc = core_err_set(-EBADMSG, "received %zu bytes, not %zu",
                          (size_t)traffic.received_bytes[COLL_REDUCE_SCATTER], (size_t)received);
    }
    free_numbers(&own);
    free(to);
    return rc;
}

/* Checks that the parts of `array` have the numbers of their owners in this rank's group. */
static int check_group(const struct rank *rank, const void *array)
{
    const struct run *run = rank->run;
    const unsigned first = rank->index / run->within * run->within;
    for (unsigned m = 0; m < run->within; m++) {
        const uint64_t end = coll_border(run->count, run->within, m + 1);
        for (uint64_t i = coll_border(run->count, run->within, m); i < end; i++) {
            if (get(run->type, array, i) != word(run->type, first + m, i)) {
                return core_err_set(-EBADMSG, "element %zu is not that of rank %u", (size_t)i,
                                    first + m);
            }
        }
    }
    return 0;
}

int contract_within(struct rank *rank)
{
    const struct run *run = rank->run;
    const size_t width = coll_type_bytes(run->type);
    const unsigned member = rank->index % run->within;
    const uint64_t begin = coll_border(run->count, run->within, member);
    const uint64_t own = coll_border(run->count, run->within, member + 1) - begin;
    unsigned char *from = calloc(run->count + 1, width);
    unsigned char *to = calloc(run->count + 1, width);
    int rc = 0;
    for (uint64_t i = begin; i < begin + own; i++) {
        put(run->type, from, i, word(run->type, rank->index, i));
    }
    for (int in_place = 0; rc == 0 && in_place <= 1; in_place++) {
        const struct coll_command command = {.op = COLL_GATHER,
                                             .type = run->type,
                                             .from = from + begin * width,
                                             .to = in_place ? from : to,
                                             .count = run->count,
                                             .within = run->within};
        if (run->delay == rank->index) {
            pause_ms(2);
        }
        rc = submit_wait(rank->coll, &command);
        rc = rc == 0 ? check_group(rank, command.to) : rc;
    }
    const struct traffic traffic = traffic_of(rank->coll);
    if (rc == 0 && traffic.received_bytes[COLL_GATHER] != 2 * (run->count - own) * width) {
        rc = core_err_set(-EBADMSG, "received %zu bytes",
                          (size_t)traffic.received_bytes[COLL_GATHER]);
    }
    float ones = 1;
    const struct coll_command sum = {.op = COLL_ALL_REDUCE, .from = &ones, .to = &ones, .count = 1};
    rc = rc == 0 ? submit_wait(rank->coll, &sum) : rc;
    rc = rc == 0 && ones != (float)run->world ? core_err_set(-EBADMSG, "the sum is not of all")
                                              : rc;
    free(from);
    free(to);
    return rc;
}

static float rounded(enum coll_type type, float value)
{
    return type == COLL_F32    ? value
           : type == COLL_BF16 ? core_bf16_to_f32(core_f32_to_bf16(value))
                               : core_fp16_to_f32(core_f32_to_fp16(value));
}

/* Checks that an element is the rounded sum of the groups' rounded sums, and is near the
 * exact sum. */
static bool is_group_sum(const struct run *run, uint64_t i, float got)
{
    const double unit = run->type == COLL_F32 ? 0x1p-24 : run->type == COLL_BF16 ? 0x1p-8 : 0x1p-11;
    double exact = 0;
    double moved = 0; /* bound of the errors of rounding the groups' sums */
    double all = 0;
    float sum = 0;
    for (unsigned first = 0; first < run->world; first += run->within) {
        float group = as_float(run->type, word(run->type, first, i));
        for (unsigned r = first; r < first + run->within; r++) {
            const float value = as_float(run->type, word(run->type, r, i));
            group = r == first ? value : group + value;
            exact += (double)value;
            all += fabs((double)value);
        }
        sum = first == 0 ? rounded(run->type, group) : sum + rounded(run->type, group);
        moved += unit * fabs((double)group);
    }
    const double adding = 0x1p-24 * run->world * all; /* bound of the errors of additions */
    const double bound = moved + unit * (fabs(exact) + moved) + 2 * adding;
    return core_f32_bits(got) == core_f32_bits(rounded(run->type, sum)) &&
           fabs((double)got - exact) <= bound;
}

/* Returns the bytes that a rank, which is a process, receives in a reduce-scatter; *far: from other
 * groups. */
static uint64_t group_bytes(const struct run *run, unsigned rank, uint64_t *far)
{
    const uint64_t own = border(run, rank + 1) - border(run, rank);
    uint64_t twins = 0; /* elements of ranks with the same index in their group */
    for (unsigned r = rank % run->within; r < run->world; r += run->within) {
        twins += border(run, r + 1) - border(run, r);
    }
    const size_t width = coll_type_bytes(run->type);
    *far = (run->world / run->within - 1) * own * width;
    return (run->within - 1) * twins * width + *far;
}

int contract_groups(struct rank *rank)
{
    const struct run *run = rank->run;
    const size_t width = coll_type_bytes(run->type);
    const uint64_t begin = border(run, rank->index);
    const uint64_t end = border(run, rank->index + 1);
    unsigned char *from = calloc(run->count + 1, width);
    unsigned char *to = calloc(run->count + 1, width);
    int rc = 0;
    for (int turn = 0; rc == 0 && turn < 4; turn++) {
        const bool in_place = turn % 2 == 1;
        const bool all = turn >= 2;
        for (uint64_t i = 0; i < run->count; i++) {
            put(run->type, from, i, word(run->type, rank->index, i));
        }
        unsigned char *target = in_place ? from : to;
        const struct coll_command command = {.op = all ? COLL_ALL_REDUCE : COLL_REDUCE_SCATTER,
                                             .type = run->type,
                                             .from = from,
                                             .to = target + (all ? 0 : begin * width),
                                             .count = run->count,
                                             .within = run->within,
                                             .borders = all ? NULL : run->borders};
        if (run->delay == rank->index) {
            pause_ms(2);
        }
        rc = submit_wait(rank->coll, &command);
        for (uint64_t i = all ? 0 : begin; rc == 0 && i < (all ? run->count : end); i++) {
            if (!is_group_sum(run, i, as_float(run->type, get(run->type, target, i)))) {
                rc = core_err_set(-EBADMSG, "turn %d: element %zu is wrong", turn, (size_t)i);
            }
        }
    }
    free(from);
    free(to);
    return rc;
}

void contract_check_group_traffic(const struct rank *rank, bool hosts)
{
    const struct run *run = rank->run;
    uint64_t far;
    const uint64_t bytes = group_bytes(run, rank->index, &far);
    const uint64_t exact = (run->world - run->within) *
                           (border(run, rank->index + 1) - border(run, rank->index)) *
                           coll_type_bytes(run->type);
    check_uint(rank->traffic.received_bytes[COLL_REDUCE_SCATTER], ==, 2 * bytes);
    check_uint(rank->traffic.far_bytes[COLL_REDUCE_SCATTER], ==, hosts ? 2 * far : 0);
    check_uint(far * run->within, ==, exact);
}

int contract_near(struct rank *rank)
{
    const struct run *run = rank->run;
    const size_t width = coll_type_bytes(run->type);
    const uint64_t begin = border(run, rank->index);
    const double unit = run->type == COLL_F32 ? 0x1p-24 : run->type == COLL_BF16 ? 0x1p-8 : 0x1p-11;
    uint32_t others = 0; /* elements that differ from the sum in rank order */
    for (int turn = 0; turn < 4; turn++) {
        const bool all = turn >= 2;
        unsigned char *from = (unsigned char *)rank->from;
        unsigned char *to = turn % 2 == 1 ? from : (unsigned char *)rank->results[turn];
        for (uint64_t i = 0; i < run->count; i++) {
            put(run->type, from, i, word(run->type, rank->index, i));
        }
        const struct coll_command command = {.op = all ? COLL_ALL_REDUCE : COLL_REDUCE_SCATTER,
                                             .type = run->type,
                                             .from = from,
                                             .to = to + (all ? 0 : begin * width),
                                             .count = run->count,
                                             .within = run->within,
                                             .borders = all ? NULL : run->borders};
        const int rc = submit_wait(rank->coll, &command);
        const uint64_t end = all ? run->count : border(run, rank->index + 1);
        for (uint64_t i = all ? 0 : begin; rc == 0 && i < end; i++) {
            const uint32_t bits = get(run->type, to, i);
            double exact = 0;
            double sizes = 0;
            for (unsigned r = 0; r < run->world; r++) {
                const double value = (double)as_float(run->type, word(run->type, r, i));
                exact += value;
                sizes += fabs(value);
            }
            others += bits != expected_sum(run, i);
            if (fabs((double)as_float(run->type, bits) - exact) > run->world * unit * sizes) {
                return core_err_set(-EBADMSG, "turn %d: element %zu is wrong", turn, (size_t)i);
            }
        }
        if (rc != 0) {
            return rc;
        }
    }
    rank->own[0][0] = others;
    return 0;
}

int contract_pipelined(struct rank *rank)
{
    float sums[2] = {1, 0};
    struct core_fence fence = {0};
    for (int i = 0; i < 40; i++) {
        struct coll_command command = {.op = COLL_ALL_REDUCE, .from = sums, .to = sums, .count = 1};
        int rc = coll_submit(rank->coll, &command, &fence);
        if (rc != 0) {
            return rc;
        }
    }
    int rc = core_fence_wait(fence, LONG_NS);
    rank->results[0][0] = core_f32_bits(sums[0]);
    return rc;
}
