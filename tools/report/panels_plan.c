/* panels_plan.c: panels over the whole run: causes, plan against reality, tiers. */
#include <math.h>
#include <string.h>

#include "tools/report/chart.h"
#include "tools/report/panels.h"

static const struct {
    enum report_figure figure;
    const char *name;
    const char *colour;
} causes[] = {
    {REPORT_COMPUTE, "compute", "compute"},       {REPORT_WAIT_READ, "store reads", "read"},
    {REPORT_WAIT_WRITE, "store writes", "write"}, {REPORT_WAIT_UPDATE, "update", "update"},
    {REPORT_WAIT_COPY, "copies", "copy"},         {REPORT_WAIT_IMBALANCE, "other ranks", "ranks"},
    {REPORT_WAIT_OTHER, "other", "other"},        {REPORT_WAIT_DATA, "rows of data", "rows"},
};
enum { CAUSES = sizeof causes / sizeof causes[0] };

void report_panels_causes(FILE *out, const struct report_run *run)
{
    const double whole = run->whole[REPORT_SECONDS].sum + run->whole[REPORT_WAIT_DATA].sum;
    char number[REPORT_NUMBER_BYTES];
    if (!(whole > 0)) {
        return;
    }
    fputs("<section class=\"wide\" id=\"causes\"><h2>Where the time went</h2><div class=\"bar\">",
          out);
    for (size_t i = 0; i < CAUSES; i++) {
        const double part = run->whole[causes[i].figure].sum / whole;
        if (part >= 0.0005) {
            fprintf(out, "<i class=\"%s\" style=\"width:%.2f%%\"></i>", causes[i].colour,
                    100 * fmin(part, 1));
        }
    }
    fputs("</div><ul class=\"key\">", out);
    for (size_t i = 0; i < CAUSES; i++) {
        const double sum = run->whole[causes[i].figure].sum;
        if (run->whole[causes[i].figure].count == 0) {
            continue;
        }
        fprintf(out, "<li class=\"%s\"><i></i>%s <b>%.1f %%</b> <span>%s</span></li>",
                causes[i].colour, causes[i].name, 100 * sum / whole,
                report_number(sum, REPORT_TIME, number));
    }
    fprintf(out, "</ul><p>Of %s in steps.", report_number(whole, REPORT_TIME, number));
    if (run->plan.bottleneck[0] != '\0') {
        fputs(" The plan expected this to bound a step: ", out);
        report_escape(out, run->plan.bottleneck);
        fputc('.', out);
    }
    fputs("</p></section>\n", out);
}

/* A row of planned against measured; bars share the larger of both as their whole. */
static void write_row(FILE *out, const char *name, enum report_unit unit, double planned,
                      double measured)
{
    char left[REPORT_NUMBER_BYTES];
    char right[REPORT_NUMBER_BYTES];
    const double most = fmax(planned, measured);
    if (!isfinite(planned) && !isfinite(measured)) {
        return;
    }
    fprintf(out, "<tr><th scope=\"row\">%s</th><td>%s</td><td>%s</td><td>", name,
            report_number(planned, unit, left), report_number(measured, unit, right));
    if (isfinite(planned) && isfinite(measured) && planned > 0) {
        fprintf(out, "%.2f", measured / planned);
    }
    fprintf(out,
            "</td><td class=\"bars\"><i class=\"other\" style=\"width:%.1f%%\"></i>"
            "<i class=\"compute\" style=\"width:%.1f%%\"></i></td></tr>\n",
            most > 0 && isfinite(planned) ? 100 * planned / most : 0,
            most > 0 && isfinite(measured) ? 100 * measured / most : 0);
}

/* Tokens a second of the steps but the first, which the median leaves out as well. */
static double rate_of(const struct report_run *run)
{
    const double seconds = report_run_seconds(run, 0.5);
    return seconds > 0 ? report_run_mean(run, REPORT_TOKENS) / seconds : (double)NAN;
}

void report_panels_plan(FILE *out, const struct report_run *run)
{
    const struct report_plan *plan = &run->plan;
    const struct report_summary *sum = &run->summary;
    const double planned = sum->known && !plan->known ? sum->plan_seconds : plan->seconds;
    const double rss = run->whole[REPORT_RSS].count > 0 ? run->whole[REPORT_RSS].high * 1e9
                                                        : (double)NAN;
    const double peak = sum->known ? fmax(sum->peak_rss_gb * 1e9, rss) : rss;
    if (!plan->known && !sum->known) {
        return;
    }
    fputs(
        "<section class=\"wide\" id=\"plan\"><h2>Plan against reality</h2><div class=\"scroll\">"
        "<table class=\"plan\"><thead><tr><th></th><th>planned</th><th>measured</th><th>ratio</th>"
        "<th aria-hidden=\"true\"></th></tr></thead><tbody>\n",
        out);
    write_row(out, "time of a step", REPORT_TIME, planned, report_run_seconds(run, 0.5));
    write_row(out, "tokens a second", REPORT_PER_SEC, plan->rate, rate_of(run));
    write_row(out, "store reads a step", REPORT_BYTES, plan->read,
              report_run_mean(run, REPORT_READ));
    write_row(out, "store writes a step", REPORT_BYTES, plan->write,
              report_run_mean(run, REPORT_WRITE));
    write_row(out, "host to device a step", REPORT_BYTES, plan->up,
              report_run_mean(run, REPORT_UP));
    write_row(out, "device to host a step", REPORT_BYTES, plan->down,
              report_run_mean(run, REPORT_DOWN));
    write_row(out, "tier DEVICE", REPORT_BYTES, plan->device_bytes, plan->taken_device);
    write_row(out, "tier HOST", REPORT_BYTES, plan->host_bytes, plan->taken_host);
    write_row(out, "tier STORE", REPORT_BYTES, plan->store_bytes, (double)NAN);
    write_row(out, "memory of the process, peak", REPORT_BYTES,
              plan->device_bytes + plan->host_bytes, peak);
    fputs("</tbody></table></div><p>Times are medians without the first step; bytes are means over "
          "all "
          "steps, saves included.</p></section>\n",
          out);
}

static double tier_bytes(const struct report_plan *plan, const char *tier)
{
    double sum = 0;
    for (size_t i = 0; i < plan->part_count; i++) {
        sum += strcmp(plan->parts[i].tier, tier) == 0 ? plan->parts[i].bytes : 0;
    }
    return sum;
}

static void write_tier(FILE *out, const struct report_plan *plan, const char *tier)
{
    static const char *const colours[] = {"compute", "update", "copy", "read",
                                          "ranks",   "write",  "other"};
    enum { COLOURS = sizeof colours / sizeof colours[0] };
    const double whole = tier_bytes(plan, tier);
    char number[REPORT_NUMBER_BYTES];
    size_t turn = 0;
    if (!(whole > 0)) {
        return;
    }
    fputs("<h3>", out);
    report_escape(out, tier);
    fprintf(out, " <b>%s</b></h3><div class=\"bar\">", report_number(whole, REPORT_BYTES, number));
    for (size_t i = 0; i < plan->part_count; i++) {
        if (strcmp(plan->parts[i].tier, tier) == 0) {
            fprintf(out, "<i class=\"%s\" style=\"width:%.2f%%\"></i>", colours[turn++ % COLOURS],
                    100 * plan->parts[i].bytes / whole);
        }
    }
    fputs("</div><ul class=\"key\">", out);
    turn = 0;
    for (size_t i = 0; i < plan->part_count; i++) {
        if (strcmp(plan->parts[i].tier, tier) == 0) {
            fprintf(out, "<li class=\"%s\"><i></i>", colours[turn++ % COLOURS]);
            report_escape(out, plan->parts[i].what);
            fprintf(out, " <b>%s</b></li>",
                    report_number(plan->parts[i].bytes, REPORT_BYTES, number));
        }
    }
    fputs("</ul>", out);
}

void report_panels_tiers(FILE *out, const struct report_run *run)
{
    static const char *const tiers[] = {"device", "host", "store"};
    if (run->plan.part_count == 0) {
        return;
    }
    fputs("<section class=\"wide\" id=\"tiers\"><h2>Who takes what, as planned</h2>", out);
    for (size_t i = 0; i < 3; i++) {
        write_tier(out, &run->plan, tiers[i]);
    }
    fputs("</section>\n", out);
}
