/* rope.c: frequencies by kind of scaling, then the tables. No state. */
#include "kernels/rope.h"

#include <errno.h>
#include <math.h>

#include "core/base/err.h"

enum { FREQUENCIES_MAX = 4096 };

/* The wavelength of frequency f is 2 pi / f positions. */
static const double two_pi = 6.283185307179586;

static void plain(const struct kern_rope_config *c, double theta, double *frequency)
{
    for (int64_t i = 0; i < c->rotary / 2; i++) {
        frequency[i] = 1.0 / pow(theta, 2.0 * (double)i / (double)c->rotary);
    }
}

static int64_t original_positions(const struct kern_rope_config *c)
{
    return c->original_max_positions > 0 ? c->original_max_positions : c->max_positions;
}

/* NTK: the base grows if the sequence is longer than the trained length. */
static void dynamic(const struct kern_rope_config *c, int64_t sequence, double *frequency)
{
    const double trained = (double)c->max_positions;
    const double longest = (double)sequence > trained ? (double)sequence : trained;
    const double growth = c->factor * longest / trained - (c->factor - 1.0);
    const double rotary = (double)c->rotary;
    plain(c, c->theta * pow(growth, rotary / (rotary - 2.0)), frequency);
}

static void llama3(const struct kern_rope_config *c, double *frequency)
{
    const double trained = (double)c->original_max_positions;
    const double low_wave = trained / c->low_freq_factor;
    const double high_wave = trained / c->high_freq_factor;
    plain(c, c->theta, frequency);
    for (int64_t i = 0; i < c->rotary / 2; i++) {
        const double f = frequency[i];
        const double wave = two_pi / f;
        if (wave > low_wave) {
            frequency[i] = f / c->factor;
        } else if (wave >= high_wave) {
            const double smooth = (trained / wave - c->low_freq_factor) /
                                  (c->high_freq_factor - c->low_freq_factor);
            frequency[i] = (1.0 - smooth) * f / c->factor + smooth * f;
        }
    }
}

/* The dimension that turns `turns` times over the trained length. */
static double yarn_dimension(const struct kern_rope_config *c, double turns)
{
    const double trained = (double)original_positions(c);
    return (double)c->rotary * log(trained / (turns * two_pi)) / (2.0 * log(c->theta));
}

static double yarn_factor(const struct kern_rope_config *c)
{
    return c->factor != 0.0 ? c->factor : (double)c->max_positions / (double)original_positions(c);
}

static void yarn(const struct kern_rope_config *c, double *frequency)
{
    double low = yarn_dimension(c, c->beta_fast != 0.0 ? c->beta_fast : 32.0);
    double high = yarn_dimension(c, c->beta_slow != 0.0 ? c->beta_slow : 1.0);
    if (!c->exact_range) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0.0);
    high = fmin(high, (double)c->rotary - 1.0);
    if (low == high) {
        high += 0.001;
    }
    plain(c, c->theta, frequency);
    for (int64_t i = 0; i < c->rotary / 2; i++) {
        const double ramp = fmin(fmax(((double)i - low) / (high - low), 0.0), 1.0);
        const double f = frequency[i];
        frequency[i] = f / yarn_factor(c) * ramp + f * (1.0 - ramp);
    }
}

static double yarn_scale(double factor, double mscale)
{
    return factor <= 1.0 ? 1.0 : 0.1 * mscale * log(factor) + 1.0;
}

static double yarn_attention(const struct kern_rope_config *c)
{
    const double factor = yarn_factor(c);
    if (c->attention_factor != 0.0) {
        return c->attention_factor;
    }
    if (c->mscale != 0.0 && c->mscale_all_dim != 0.0) {
        return yarn_scale(factor, c->mscale) / yarn_scale(factor, c->mscale_all_dim);
    }
    return yarn_scale(factor, 1.0);
}

static int check(const struct kern_rope_config *c)
{
    if (c->rotary < 2 || c->rotary % 2 != 0 || c->rotary > 2 * FREQUENCIES_MAX) {
        return core_err_set(-EINVAL, "%lld rotary dimensions; expected an even number from 2 to %d",
                            (long long)c->rotary, 2 * FREQUENCIES_MAX);
    }
    if (!(c->theta > 1.0) || !isfinite(c->theta)) {
        return core_err_set(-EINVAL, "rope_theta is %g; it must be above 1", c->theta);
    }
    const bool scaled = c->kind != KERN_ROPE_DEFAULT &&
                        !(c->kind == KERN_ROPE_YARN && c->factor == 0.0);
    if (scaled && (!(c->factor >= 1.0) || !isfinite(c->factor))) {
        return core_err_set(-EINVAL, "factor of the RoPE scaling is %g; it must be at least 1",
                            c->factor);
    }
    if ((c->kind == KERN_ROPE_DYNAMIC || c->kind == KERN_ROPE_YARN) && original_positions(c) < 1) {
        return core_err_set(-EINVAL,
                            "max_position_embeddings is %lld; this RoPE scaling needs at least 1",
                            (long long)c->max_positions);
    }
    if (c->kind == KERN_ROPE_DYNAMIC && c->rotary == 2) {
        return core_err_set(-EINVAL, "dynamic RoPE scaling needs more than 2 rotary dimensions");
    }
    if (c->kind == KERN_ROPE_LLAMA3 &&
        (c->original_max_positions < 1 || !(c->low_freq_factor > 0.0) ||
         !(c->high_freq_factor > c->low_freq_factor))) {
        return core_err_set(-EINVAL,
                            "llama3 RoPE scaling with original_max_position_embeddings %lld, "
                            "low_freq_factor %g and high_freq_factor %g; the last must be the "
                            "larger of two positive factors",
                            (long long)c->original_max_positions, c->low_freq_factor,
                            c->high_freq_factor);
    }
    return 0;
}

/* Returns the factor for cosine and sine. */
static double frequencies(const struct kern_rope_config *c, int64_t sequence, double *frequency)
{
    switch (c->kind) {
    case KERN_ROPE_DEFAULT: plain(c, c->theta, frequency); break;
    case KERN_ROPE_LINEAR:
        plain(c, c->theta, frequency);
        for (int64_t i = 0; i < c->rotary / 2; i++) {
            frequency[i] /= c->factor;
        }
        break;
    case KERN_ROPE_DYNAMIC: dynamic(c, sequence, frequency); break;
    case KERN_ROPE_YARN: yarn(c, frequency); return yarn_attention(c);
    case KERN_ROPE_LLAMA3: llama3(c, frequency); break;
    }
    return 1.0;
}

int kern_rope_build(const struct kern_rope_config *config, int64_t positions, int64_t sequence,
                    float *cos_table, float *sin_table)
{
    int rc = check(config);
    if (rc != 0) {
        return rc;
    }
    double frequency[FREQUENCIES_MAX];
    const double factor = frequencies(config, sequence > 0 ? sequence : positions, frequency);
    const int64_t half = config->rotary / 2;
    for (int64_t p = 0; p < positions; p++) {
        for (int64_t i = 0; i < half; i++) {
            const float angle = (float)frequency[i] * (float)p;
            cos_table[p * half + i] = (float)(cos((double)angle) * factor);
            sin_table[p * half + i] = (float)(sin((double)angle) * factor);
        }
    }
    return 0;
}
