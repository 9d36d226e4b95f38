/* scale.c: round numbers are 1, 2 or 5 times a power of ten. */
#include "tools/report/scale.h"

#include <math.h>

static double round_step(double rough)
{
    const double power = pow(10, floor(log10(rough)));
    const double part = rough / power;
    return power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
}

/* Sums and quotients of such numbers are still numbers. */
static double tamed(double value)
{
    return fabs(value) < 1e-290 ? 0 : fmax(fmin(value, 1e290), -1e290);
}

static void add_tick(struct report_scale *scale, double value)
{
    if (scale->tick_count < REPORT_TICKS_MAX && value >= scale->low && value <= scale->high) {
        scale->ticks[scale->tick_count++] = value;
    }
}

void report_scale_linear(struct report_scale *scale, double low, double high, int ticks)
{
    if (!isfinite(low) || !isfinite(high)) {
        low = 0;
        high = 1;
    }
    low = tamed(low);
    high = tamed(high);
    if (high - low <= fabs(high) * 1e-9) {
        const double room = high != 0 ? fabs(high) * 0.1 : 1;
        low -= low == 0 ? 0 : room;
        high += room;
    }
    const double step = round_step((high - low) / ticks);
    *scale = (struct report_scale){.low = floor(low / step + 1e-9) * step,
                                   .high = ceil(high / step - 1e-9) * step};
    const int count = (int)lround((scale->high - scale->low) / step);
    for (int i = 0; i <= count; i++) {
        const double value = scale->low + i * step;
        add_tick(scale, fabs(value) < step * 1e-6 ? 0 : fmin(value, scale->high));
    }
}

void report_scale_log(struct report_scale *scale, double low, double high)
{
    low = fmax(low, high * 1e-12); /* an axis of more decades shows nothing */
    const int first = (int)floor(log10(low) + 1e-9);
    const int last = (int)ceil(log10(high) - 1e-9);
    const int end = last > first ? last : first + 1;
    *scale = (struct report_scale){
        .low = pow(10, first), .high = pow(10, end), .logarithmic = true};
    const int stride = (end - first) / 6 + 1;
    for (int power = first; power <= end; power += stride) {
        add_tick(scale, pow(10, power));
    }
}

double report_scale_place(const struct report_scale *scale, double value)
{
    double place = (value - scale->low) / (scale->high - scale->low);
    if (scale->logarithmic) {
        place = value > 0 ? log(value / scale->low) / log(scale->high / scale->low) : 0;
    }
    return place < 0 ? 0 : place > 1 ? 1 : place;
}
