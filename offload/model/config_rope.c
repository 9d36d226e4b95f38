/* config_rope.c: reads rotary embeddings as transformers 4 and 5 spell them. */
#include "offload/model/config_rope.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/json/json.h"
#include "offload/model/config.h"

enum { DICTIONARIES = 2 };

/* If a file has both, they must agree. */
static const char *const dictionary_keys[DICTIONARIES] = {"rope_scaling", "rope_parameters"};

/* *out is NULL if the dictionary is absent or empty. */
static int find_dictionary(const struct core_json *doc, const char *key,
                           const struct core_json_value **out)
{
    const struct core_json_value *value = NULL;
    int rc = core_json_get(doc, core_json_root(doc), key, CORE_JSON_OBJECT, &value);
    *out = rc == 0 && core_json_count(value) > 0 ? value : NULL;
    return rc == -ENOENT ? 0 : rc;
}

static int read_type(const struct core_json *doc, const struct core_json_value *dictionary,
                     enum kern_rope_kind *out)
{
    static const char *const names[] = {
        [KERN_ROPE_DEFAULT] = "default", [KERN_ROPE_LINEAR] = "linear",
        [KERN_ROPE_DYNAMIC] = "dynamic", [KERN_ROPE_YARN] = "yarn",
        [KERN_ROPE_LLAMA3] = "llama3",
    };
    const char *key = "rope_type";
    const char *name = NULL;
    const char *older = NULL;
    int rc = core_json_get_string(doc, dictionary, key, &name);
    rc = rc == 0 || rc == -ENOENT ? core_json_get_string(doc, dictionary, "type", &older) : rc;
    if (rc != 0 && rc != -ENOENT) {
        return rc;
    }
    if (name != NULL && older != NULL && strcmp(name, older) != 0) {
        return core_json_refuse(doc, dictionary, "type", 0, -EINVAL,
                                "found \"%s\" here and \"%s\" in rope_type", older, name);
    }
    if (name == NULL && older != NULL) {
        key = "type";
        name = older;
    }
    *out = KERN_ROPE_DEFAULT;
    if (name == NULL) {
        double factor = 1.0;
        rc = core_json_get_real(doc, dictionary, "factor", &factor);
        return rc != 0 || factor == 1.0
                   ? (rc == -ENOENT ? 0 : rc)
                   : core_json_refuse(doc, dictionary, "factor", 0, -EINVAL,
                                      "found %g, but rope_type is missing", factor);
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i], name) == 0) {
            *out = (enum kern_rope_kind)i;
            return 0;
        }
    }
    return core_json_refuse(doc, dictionary, key, 0, -EINVAL,
                            "the rope type \"%s\" is not supported; default, linear, dynamic, "
                            "yarn and llama3 are",
                            name);
}

/* The number must be above zero; an absent key leaves *to unchanged. */
static int read_real(const struct core_json *doc, const struct core_json_value *from,
                     const char *key, double *to)
{
    double value = 0.0;
    int rc = core_json_get_real(doc, from, key, &value);
    if (rc != 0) {
        return rc == -ENOENT ? 0 : rc;
    }
    if (!(value > 0.0) || !isfinite(value)) {
        return core_json_refuse(doc, from, key, 0, -EINVAL, "%g is not above zero", value);
    }
    *to = value;
    return 0;
}

/* An absent key leaves *to unchanged. Null is refused, because transformers fails on it. */
static int read_length(const struct core_json *doc, const struct core_json_value *from, int64_t *to)
{
    static const char key[] = "original_max_position_embeddings";
    int64_t value;
    if (core_json_find(from, key) == NULL) {
        return 0;
    }
    int rc = core_json_get_integer(doc, from, key, &value);
    if (rc != 0) {
        return rc != -ENOENT ? rc
                             : core_json_refuse(doc, from, key, 0, -EINVAL,
                                                "found null; leave the key out for the default");
    }
    if (value <= 0) {
        return core_json_refuse(doc, from, key, 0, -EINVAL, "%" PRId64 " is not above zero", value);
    }
    *to = value;
    return 0;
}

/* If the dictionary and the top level have rope_theta, they must agree. */
static int read_theta(const struct core_json *doc, const struct core_json_value *dictionary,
                      const char *name, double *theta)
{
    const struct core_json_value *root = core_json_root(doc);
    double outside = 0.0;
    double inside = 0.0;
    int rc = read_real(doc, root, "rope_theta", &outside);
    if (rc == 0 && dictionary != NULL) {
        rc = read_real(doc, dictionary, "rope_theta", &inside);
    }
    if (rc == 0 && inside > 0.0 && outside > 0.0 && inside != outside) {
        return core_json_refuse(doc, root, "rope_theta", 0, -EINVAL, "found %g here and %g in %s",
                                outside, inside, name);
    }
    if (inside > 0.0 || outside > 0.0) {
        *theta = inside > 0.0 ? inside : outside;
    }
    return rc;
}

/* With an original length, YaRN's factor may be absent: it is the ratio of the lengths. */
static bool has_original(const struct core_json *doc, const struct core_json_value *dictionary)
{
    static const char key[] = "original_max_position_embeddings";
    return core_json_find(dictionary, key) != NULL ||
           core_json_find(core_json_root(doc), key) != NULL;
}

static int read_scaling(const struct core_json *doc, const struct core_json_value *dictionary,
                        struct kern_rope_config *rope)
{
    const struct {
        const char *key;
        double *to;
        bool llama3; /* required by llama3 */
        bool zero;   /* 0 means the same as absent */
    } reals[] = {
        {"factor", &rope->factor, true, false},
        {"low_freq_factor", &rope->low_freq_factor, true, false},
        {"high_freq_factor", &rope->high_freq_factor, true, false},
        {"beta_fast", &rope->beta_fast, false, true},
        {"beta_slow", &rope->beta_slow, false, true},
        {"attention_factor", &rope->attention_factor, false, false},
        {"mscale", &rope->mscale, false, true},
        {"mscale_all_dim", &rope->mscale_all_dim, false, true},
    };
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++) {
        double value;
        const bool zero = reals[i].zero &&
                          core_json_get_real(doc, dictionary, reals[i].key, &value) == 0 &&
                          value == 0.0;
        int rc = zero ? 0 : read_real(doc, dictionary, reals[i].key, reals[i].to);
        if (rc != 0) {
            return rc;
        }
        const bool needed = rope->kind == KERN_ROPE_LLAMA3 ? reals[i].llama3 : i == 0;
        const bool from_lengths = rope->kind == KERN_ROPE_YARN && has_original(doc, dictionary);
        if (needed && *reals[i].to == 0.0 && !from_lengths) {
            return core_json_refuse(doc, dictionary, reals[i].key, 0, -EINVAL, "%s is missing",
                                    reals[i].key);
        }
    }
    bool truncate = true;
    int rc = core_json_get_bool(doc, dictionary, "truncate", &truncate);
    rope->exact_range = !truncate;
    return rc == -ENOENT ? 0 : rc;
}

/* As in transformers, the top level's length replaces the dictionary's. */
static int read_original(const struct core_json *doc, const struct core_json_value *dictionary,
                         struct kern_rope_config *rope)
{
    if (rope->kind != KERN_ROPE_YARN && rope->kind != KERN_ROPE_LLAMA3) {
        return 0;
    }
    rope->original_max_positions = rope->max_positions;
    int rc = read_length(doc, dictionary, &rope->original_max_positions);
    if (rc != 0) {
        return rc;
    }
    return read_length(doc, core_json_root(doc), &rope->original_max_positions);
}

static int tell_unscaled(const struct core_json *doc, const struct core_json_value *dictionary,
                         const char *name)
{
    double factor = 1.0;
    const int rc = core_json_get_real(doc, dictionary, "factor", &factor);
    if (rc == 0 && factor != 1.0) {
        core_log(CORE_LOG_WARN,
                 "%s: %s.factor is %g, but the rope type \"default\" does not scale; it is ignored",
                 core_json_source(doc), name, factor);
    }
    return rc == -ENOENT ? 0 : rc;
}

static int read_dictionary(const struct core_json *doc, const struct core_json_value *dictionary,
                           const char *name, struct kern_rope_config *rope)
{
    int rc = read_theta(doc, dictionary, name, &rope->theta);
    if (rc != 0 || dictionary == NULL) {
        return rc;
    }
    if (core_json_find(dictionary, "full_attention") != NULL ||
        core_json_find(dictionary, "sliding_attention") != NULL) {
        return core_err_set(-EINVAL, "%s: %s per layer type is not supported",
                            core_json_source(doc), name);
    }
    double part = 1.0;
    rc = read_real(doc, dictionary, "partial_rotary_factor", &part);
    if (rc != 0) {
        return rc;
    }
    if (part != 1.0) {
        return core_json_refuse(doc, dictionary, "partial_rotary_factor", 0, -EINVAL,
                                "%g is not supported, only 1.0", part);
    }
    rc = read_type(doc, dictionary, &rope->kind);
    if (rc != 0) {
        return rc;
    }
    if (rope->kind == KERN_ROPE_DEFAULT) {
        return tell_unscaled(doc, dictionary, name);
    }
    rc = read_original(doc, dictionary, rope);
    return rc == 0 ? read_scaling(doc, dictionary, rope) : rc;
}

static bool is_same(const struct kern_rope_config *a, const struct kern_rope_config *b)
{
    return a->kind == b->kind && a->theta == b->theta && a->factor == b->factor &&
           a->original_max_positions == b->original_max_positions &&
           a->low_freq_factor == b->low_freq_factor && a->high_freq_factor == b->high_freq_factor &&
           a->beta_fast == b->beta_fast && a->beta_slow == b->beta_slow &&
           a->attention_factor == b->attention_factor && a->mscale == b->mscale &&
           a->mscale_all_dim == b->mscale_all_dim && a->exact_range == b->exact_range;
}

/* Returns the length before scaling times the factor, but at least max_positions. */
static int64_t scaled_positions(const struct kern_rope_config *rope)
{
    const bool has_original = rope->kind == KERN_ROPE_YARN || rope->kind == KERN_ROPE_LLAMA3;
    const int64_t trained = has_original ? rope->original_max_positions : rope->max_positions;
    const double reached = rope->kind == KERN_ROPE_DEFAULT ? 0.0 : rope->factor * (double)trained;
    const int64_t scaled = reached < INT32_MAX ? (int64_t)reached : INT32_MAX;
    return scaled > rope->max_positions ? scaled : rope->max_positions;
}

int model_config_read_rope(const struct core_json *doc, struct model_config *config)
{
    const struct core_json_value *found[DICTIONARIES];
    struct kern_rope_config rope[DICTIONARIES];
    config->rope.rotary = config->head_dim;
    config->rope.max_positions = config->positions;
    for (int i = 0; i < DICTIONARIES; i++) {
        rope[i] = config->rope;
        int rc = find_dictionary(doc, dictionary_keys[i], &found[i]);
        if (rc != 0) {
            return rc;
        }
        rc = read_dictionary(doc, found[i], dictionary_keys[i], &rope[i]);
        if (rc != 0) {
            return rc;
        }
    }
    if (found[0] != NULL && found[1] != NULL && !is_same(&rope[0], &rope[1])) {
        return core_json_refuse(doc, core_json_root(doc), dictionary_keys[0], 0, -EINVAL,
                                "the content differs from %s; keep one of the two",
                                dictionary_keys[1]);
    }
    config->rope = found[0] != NULL ? rope[0] : rope[1];
    config->length_max = scaled_positions(&config->rope);
    const int rc = kern_rope_build(&config->rope, 0, 1, NULL, NULL);
    return rc != 0 ? core_err_prefix(rc, "%s", core_json_source(doc)) : 0;
}
