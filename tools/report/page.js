// page.js: draws the page from the run's data, which page.c writes into the page as JSON, and shows the
// values at the pointer in all charts at once; arrow keys move the pointer. No network, no storage.
'use strict';
const run = JSON.parse(document.getElementById('run').textContent);
const { plan, figures, buckets, width, first, last } = run;

// ---- numbers as text; a number that the log does not have is null ----

const known = value => value !== null && value !== undefined && Number.isFinite(value);
const escaped = text => text.replace(/[&<>"]/g, c => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[c]).replace(/[\x00-\x1f]/g, ' ');
const digits = size => size >= 99.95 || size === 0 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : 3;
const prefixed = (value, unit) => {
  const prefixes = ['', 'k', 'M', 'G', 'T', 'P'];
  let power = 0;
  for (; power < 5 && Math.abs(value) >= 999.5; power++) value /= 1000;
  const fixed = power === 0 && Number.isInteger(value) ? 0 : digits(Math.abs(value));
  return value.toFixed(fixed) + (unit || power ? ' ' : '') + prefixes[power] + unit;
};
// Four digits, as printf's %.4g.
const plain = value => {
  const [part, power] = value.toExponential(3).split('e');
  if (value === 0 || (power >= -4 && power < 4)) return String(Number(value.toPrecision(4)));
  return part.replace(/\.?0+$/, '') + 'e' + power[0] + power.slice(1).padStart(2, '0');
};
const time = value => {
  const units = [[172800, 86400, 'd'], [5400, 3600, 'h'], [120, 60, 'min'], [0.9995, 1, 's'], [0.0009995, 1e-3, 'ms'], [0, 1e-6, 'us']];
  if (value === 0) return '0 s';
  const [, unit, name] = units.find(([from]) => Math.abs(value) >= from);
  return (value / unit).toFixed(digits(Math.abs(value / unit))) + ' ' + name;
};
const units = {
  plain, time,
  count: value => prefixed(value, ''), bytes: value => prefixed(value, 'B'), gb: value => prefixed(value * 1e9, 'B'),
  rate: value => Math.abs(value) < 1e5 ? value.toFixed(digits(Math.abs(value))) + ' tok/s' : prefixed(value, 'tok/s'),
};
const number = (value, unit) => known(value) ? units[unit](value) : '\u2013';
const tick = (value, unit) => number(value, unit).replace(/\.(\d*?)0*(?=$|[^\de])/, (_, kept) => kept ? '.' + kept : '');

// ---- axes: round numbers are 1, 2 or 5 times a power of ten ----

const linear = (low, high, wanted) => {
  const tamed = value => Math.abs(value) < 1e-290 ? 0 : Math.max(Math.min(value, 1e290), -1e290);
  if (!known(low) || !known(high)) [low, high] = [0, 1];
  [low, high] = [tamed(low), tamed(high)];
  if (high - low <= Math.abs(high) * 1e-9) {
    const room = high !== 0 ? Math.abs(high) * 0.1 : 1;
    low -= low === 0 ? 0 : room;
    high += room;
  }
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find(part => rough / power <= part || part === 10);
  const axis = { low: Math.floor(low / step + 1e-9) * step, high: Math.ceil(high / step - 1e-9) * step, ticks: [] };
  for (let i = 0; i <= Math.round((axis.high - axis.low) / step) && axis.ticks.length < 12; i++) {
    const value = axis.low + i * step;
    axis.ticks.push(Math.abs(value) < step * 1e-6 ? 0 : Math.min(value, axis.high));
  }
  return axis;
};
const logarithmic = (low, high) => {
  low = Math.max(low, high * 1e-12); // with more decades, the values could not be told apart
  const from = Math.floor(Math.log10(low) + 1e-9);
  const to = Math.max(Math.ceil(Math.log10(high) - 1e-9), from + 1);
  const axis = { low: 10 ** from, high: 10 ** to, logarithmic: true, ticks: [] };
  for (let power = from; power <= to; power += Math.floor((to - from) / 6) + 1) axis.ticks.push(10 ** power);
  return axis;
};
// The position of a value on an axis: 0 at the low end, 1 at the high end; values outside are moved to the nearer end.
const place = (axis, value) => {
  const part = !axis.logarithmic ? (value - axis.low) / (axis.high - axis.low)
    : value > 0 ? Math.log(value / axis.low) / Math.log(axis.high / axis.low) : 0;
  return Math.min(Math.max(part, 0), 1);
};

// ---- values of a bucket, the steps that share a point ----

const whole = name => figures[name].whole;
const count = (name, at) => figures[name].count ? figures[name].count[at] : figures[name].sum[at] === null ? 0 : 1;
const has = (name, at) => at >= 0 && at < buckets && count(name, at) > 0;
const mean = (name, at) => has(name, at) ? figures[name].sum[at] / count(name, at) : null;
const lowest = (name, at) => (figures[name].low || figures[name].sum)[at];
const highest = (name, at) => (figures[name].high || figures[name].sum)[at];
const meanOf = name => whole(name).count > 0 ? whole(name).sum / whole(name).count : null;
const highOf = name => whole(name).count > 0 ? whole(name).high : null;
const placeOf = step => (Math.floor((step - first) / width) + 0.5) / buckets;

// ---- shapes; both coordinates are in 0..1000 ----

const middle = at => (1000 * (at + 0.5) / buckets).toFixed(1);
const y = (axis, value) => 1000 - 1000 * place(axis, value);
const path = (name, d) => `<path class="${name}" d="${d}"/>`;
const each = draw => Array.from({ length: buckets }, (_, at) => draw(at)).join('');

// Groups of adjacent buckets that have values.
const runs = name => {
  const list = [];
  for (let at = 0; at < buckets; at++) {
    if (!has(name, at)) continue;
    if (!has(name, at - 1)) list.push([]);
    list[list.length - 1].push(at);
  }
  return list;
};
const band = (series, axis) => width === 1 ? '' : path(`band ${series.colour}`, runs(series.name).map(list =>
  list.map((at, i) => `${i ? 'L' : 'M'}${middle(at)} ${y(axis, highest(series.name, at)).toFixed(1)}`).join('') +
  list.reverse().map(at => `L${middle(at)} ${y(axis, lowest(series.name, at)).toFixed(1)}`).join('') + 'Z').join(''));
const line = (series, axis) => path(`line ${series.colour}`, runs(series.name).map(list =>
  list.map((at, i) => `${i ? 'L' : 'M'}${middle(at)} ${y(axis, mean(series.name, at)).toFixed(1)}`).join('')).join(''));
// A dot is a line of almost no length with round ends. A series of dots has one for each value; other series have one for
// each value without a neighbour.
const dots = (series, axis) => path(`dots ${series.colour}`, each(at =>
  has(series.name, at) && (series.dots || !(has(series.name, at - 1) || has(series.name, at + 1)))
    ? `M${middle(at)} ${y(axis, mean(series.name, at)).toFixed(1)}h.01` : ''));
// A mark at the bottom for each bucket with a value that was not a number.
const odd = series => whole(series.name).odd === 0 ? ''
  : path('odd', each(at => figures[series.name].odd[at] > 0 ? `M${middle(at)} 1000V940` : ''));
const lines = (chart, axis) => chart.series.map(series =>
  (series.dots ? '' : band(series, axis) + line(series, axis)) + dots(series, axis) + odd(series)).join('');

// Stacked columns; charts with `sums` have at most 60.
const stack = (chart, axis) => {
  const wide = chart.sums ? Math.floor((buckets + 59) / 60) : 1;
  const tops = new Array(buckets).fill(0);
  const left = at => 1000 * at / buckets;
  const air = buckets <= 80 ? 80 / (buckets + 7) : 0; // the gap between columns, if there are few
  return chart.series.map(({ name, colour }) => {
    let d = '';
    if (!(highOf(name) > 0)) return '';
    for (let at = 0; at < buckets; at += wide) {
      const end = Math.min(at + wide, buckets);
      let [sum, steps] = [0, 0];
      for (let k = at; k < end; k++) {
        sum += has(name, k) ? figures[name].sum[k] : 0;
        steps += count(name, k);
      }
      const low = y(axis, tops[at]);
      tops[at] += steps > 0 ? sum / steps : 0;
      const high = y(axis, tops[at]);
      if (low - high > 0.05) d += `M${left(at).toFixed(2)} ${low.toFixed(1)}V${high.toFixed(1)}H${(left(end) - air).toFixed(2)}V${low.toFixed(1)}Z`;
    }
    return path(`area ${colour}`, d);
  }).join('');
};

// ---- a chart ----

// The limits of all values; null if there are none. 95 of 100 buckets are not above `usual`, and `least` is the lowest positive value.
const spanOf = chart => {
  const span = { low: null, high: null, usual: null, least: null };
  const down = (a, b) => a === null ? b : Math.min(a, b);
  const up = (a, b) => a === null ? b : Math.max(a, b);
  const tops = [];
  for (let at = 0; at < buckets; at++) {
    const means = chart.series.map(series => mean(series.name, at)).filter(known);
    if (means.length === 0) continue;
    const top = chart.stacked ? means.reduce((a, b) => a + b) : Math.max(...means);
    tops.push(top);
    span.high = up(span.high, top);
    for (const { name } of chart.series) {
      if (!has(name, at)) continue;
      span.low = down(span.low, lowest(name, at));
      if (!chart.stacked) span.high = up(span.high, highest(name, at));
      if (lowest(name, at) > 0) span.least = down(span.least, lowest(name, at));
    }
  }
  tops.sort((a, b) => a - b);
  const nth = Math.floor(tops.length * 95 / 100);
  // If there are few buckets, the highest one counts as an outlier.
  if (tops.length > 0) span.usual = tops[tops.length > 1 && tops.length < 20 ? tops.length - 2 : Math.min(nth, tops.length - 1)];
  return span;
};
const axisOf = (chart, span) => {
  const outlier = 2; // values this many times as high as nearly all others are cut at the top
  let high = known(chart.limit) ? Math.max(span.high, chart.limit) : span.high;
  const low = known(chart.limit) ? Math.min(span.low, chart.limit) : span.low;
  if (chart.mayLog && span.least > 0 && high > span.least * 60) return logarithmic(span.least, high);
  if (chart.fromZero && span.usual > 0 && high > span.usual * outlier) {
    high = Math.max(span.usual * 1.15, known(chart.limit) ? chart.limit : 0);
  }
  return linear(chart.fromZero ? Math.min(0, low) : low, high, 4);
};
const legend = chart => `<ul class="key">${chart.series.filter(({ name }) => whole(name).count + whole(name).odd > 0).map(({ name, title, colour }) =>
  `<li class="${colour}"><i></i>${title} <output data-f="${name}" data-u="${chart.unit}">` +
  (chart.sums ? number(whole(name).sum, chart.unit) : chart.unit !== 'plain' ? `\u00d8 ${number(meanOf(name), chart.unit)}` : '') +
  '</output></li>').join('')}${known(chart.limit) ? `<li class="limit"><i></i>${chart.limitName} <b>${number(chart.limit, chart.unit)}</b></li>` : ''}</ul>`;
const axes = (chart, axis) => {
  const steps = linear(first, last, 6).ticks.map(step => Math.max(step, first))
    .filter((step, i, all) => Number.isInteger(step) && step <= last && step !== all[i - 1]);
  return `<div class="ys">${axis.ticks.map(value => `<span style="bottom:${(100 * place(axis, value)).toFixed(3)}%">${tick(value, chart.unit)}</span>`).join('')}</div>` +
    `<div class="xs">${steps.map(step => `<span style="left:${(100 * placeOf(step)).toFixed(3)}%">${tick(step, 'count')}</span>`).join('')}</div>`;
};
const across = (name, axis, value) => path(name, `M0 ${y(axis, value).toFixed(1)}H1000`);
const picture = (chart, axis) => '<svg viewBox="0 0 1000 1000" preserveAspectRatio="none" role="img" ' +
  `aria-label="${chart.title} over steps ${first} to ${last}">${axis.ticks.map(value => across('grid', axis, value)).join('')}` +
  (chart.stacked ? stack : lines)(chart, axis) +
  run.events.filter(event => event.kind === 'resumed' && event.step >= first && event.step <= last)
    .map(event => path('resumed', `M${(1000 * placeOf(event.step)).toFixed(1)} 0V1000`)).join('') +
  `${known(chart.limit) ? across('limit', axis, chart.limit) : ''}</svg>`;
// Draws nothing if the run has no value of any series.
const drawChart = chart => {
  const span = spanOf(chart);
  if (span.high === null) return '';
  const axis = axisOf(chart, span);
  const cut = span.high > axis.high * 1.0001 ? ` Cut at the top: up to ${number(span.high, chart.unit)}.` : '';
  return `<figure id="${chart.id}" tabindex="0"><figcaption><h2>${chart.title}</h2>${legend(chart)}</figcaption>` +
    `<div class="plot">${picture(chart, axis)}${axes(chart, axis)}<div class="cursor" hidden></div></div><p>${chart.about}${cut}</p></figure>\n`;
};

// ---- the charts ----

const series = (name, title, colour, isDots) => ({ name, title, colour, dots: isDots });
const causes = [
  series('compute', 'compute', 'compute'), series('wait_read', 'store reads', 'read'), series('wait_write', 'store writes', 'write'),
  series('wait_update', 'update', 'update'), series('wait_copy', 'copies', 'copy'), series('wait_imbalance', 'other ranks', 'ranks'),
  series('wait_other', 'other', 'other'), series('wait_data', 'rows of data', 'rows'),
];
const memoryPlan = known(plan.device_bytes) && known(plan.host_bytes) ? plan.device_bytes + plan.host_bytes : null;
const charts = [
  { id: 'loss', title: 'Loss', unit: 'plain', series: [series('loss', 'train', 'compute'), series('eval', 'eval', 'read', true)],
    about: 'Mean over the trained tokens of a step; the band holds all steps of a point. Marks at the bottom are losses that were not a number.' },
  { id: 'norm', title: 'Gradient norm', unit: 'plain', series: [series('norm', 'norm', 'update')], mayLog: true,
    limit: plan.clip > 0 ? plan.clip : null, limitName: 'clip limit',
    about: 'Before clipping; steps above the limit were scaled down to it. Marks at the bottom are steps whose norm was not finite.' },
  { id: 'lr', title: 'Learning rate', unit: 'plain', series: [series('lr', 'rate', 'copy')], fromZero: true, about: 'The rate that the step used.' },
];
if (whole('scale').high > whole('scale').low || whole('scale').high > 1) {
  charts.push({ id: 'scale', title: 'Loss scale', unit: 'plain', series: [series('scale', 'scale', 'other')], mayLog: true,
    about: 'Halved after an overflow, whose step is skipped; doubled after a while without one.' });
}
if (whole('margin').count + whole('margin').odd > 0) {
  charts.push({ id: 'rewards', title: 'Rewards of pairs', unit: 'plain', series: [series('chosen', 'chosen', 'copy'), series('rejected', 'rejected', 'write'),
    series('margin', 'margin', 'compute'), series('eval_margin', 'eval margin', 'read', true)],
    about: 'Means over the pairs of a step: of the chosen answers, of the rejected ones, and their difference.' },
  { id: 'accuracy', title: 'Pairs that are right', unit: 'plain', series: [series('accuracy', 'train', 'compute'), series('eval_accuracy', 'eval', 'read', true)],
    fromZero: true, about: 'The share of pairs whose chosen answer has the larger reward.' });
}
charts.push(
  { id: 'time', title: 'Step time by cause', unit: 'time', series: causes, stacked: true, fromZero: true, limit: plan.seconds, limitName: 'planned',
    about: 'What the device did, and what it waited for while it was idle.' },
  { id: 'rate', title: 'Tokens per second', unit: 'rate', series: [series('rate', 'measured', 'copy')], fromZero: true, limit: plan.rate, limitName: 'planned',
    about: 'Tokens of the data, without padding.' },
  { id: 'bytes', title: 'Bytes per step, by path', unit: 'bytes', fromZero: true, about: 'Between drives and memory, between host and device, and between ranks.',
    series: [series('read', 'store reads', 'read'), series('write', 'store writes', 'write'), series('up', 'host to device', 'compute'), series('down', 'device to host', 'update'),
      series('gather', 'weights between ranks', 'ranks'), series('reduce', 'gradients between ranks', 'copy'),
      series('gather_between', 'weights between nodes', 'other'), series('reduce_between', 'gradients between nodes', 'write')] },
  ...(whole('drive_1').count > 0 ? [{ id: 'drives', title: 'Bytes per step, by drive', unit: 'bytes', fromZero: true, about: 'Read and written, in the order of --store, by all ranks.',
    series: ['read', 'write', 'compute', 'update', 'ranks', 'copy', 'other', 'rows'].map((colour, i) => series(`drive_${i + 1}`, `store ${i + 1}`, colour)) }] : []),
  { id: 'memory', title: 'Memory of the process', unit: 'gb', series: [series('rss', 'measured', 'update')], fromZero: true,
    limit: memoryPlan === null ? null : memoryPlan / 1e9, limitName: 'planned',
    about: 'After each step, huge pages included, beside the plan for all tiers in memory.' });
if (whole('right').sum + whole('wrong').sum > 0) {
  charts.push({ id: 'guesses', title: 'Speculative updates', unit: 'count', series: [series('right', 'right', 'copy'), series('wrong', 'wrong', 'write')],
    stacked: true, fromZero: true, sums: true,
    about: 'Steps whose update ran before the norm was known: the share that the norm confirmed, and the share that was redone.' });
}
if (whole('lost_seconds').sum > 0) {
  charts.push({ id: 'lost', title: 'Time lost to wrong speculation', unit: 'time', series: [series('lost_seconds', 'lost', 'write')],
    stacked: true, fromZero: true, sums: true, about: 'In the step that was wrong, and in the next one.' });
}

// ---- panels over the whole run ----

const bar = parts => `<div class="bar">${parts.map(([colour, part]) => `<i class="${colour}" style="width:${(100 * Math.min(part, 1)).toFixed(2)}%"></i>`).join('')}</div>`;
const drawCauses = () => {
  const total = whole('seconds').sum + whole('wait_data').sum;
  if (!(total > 0)) return '';
  return '<section class="wide" id="causes"><h2>Where the time went</h2>' +
    bar(causes.map(({ name, colour }) => [colour, whole(name).sum / total]).filter(([, part]) => part >= 0.0005)) +
    `<ul class="key">${causes.filter(({ name }) => whole(name).count > 0).map(({ name, title, colour }) =>
      `<li class="${colour}"><i></i>${title} <b>${(100 * whole(name).sum / total).toFixed(1)} %</b> <span>${time(whole(name).sum)}</span></li>`).join('')}</ul>` +
    `<p>Of ${time(total)} in steps.${plan.bottleneck ? ` The plan expected this bottleneck: ${escaped(plan.bottleneck)}.` : ''}</p></section>\n`;
};
const peak = run.summary && known(run.summary.peak_rss_gb) ? Math.max(run.summary.peak_rss_gb, highOf('rss')) : highOf('rss');
const rate = run.median_seconds > 0 && meanOf('tokens') !== null ? meanOf('tokens') / run.median_seconds : null;
const drawPlan = () => {
  if (!plan.known && !run.summary) return '';
  const row = (name, unit, planned, measured) => {
    const most = Math.max(planned || 0, measured || 0);
    const share = value => most > 0 && known(value) ? (100 * value / most).toFixed(1) : '0.0';
    if (!known(planned) && !known(measured)) return '';
    return `<tr><th scope="row">${name}</th><td>${number(planned, unit)}</td><td>${number(measured, unit)}</td>` +
      `<td>${known(planned) && known(measured) && planned > 0 ? (measured / planned).toFixed(2) : ''}</td>` +
      `<td class="bars"><i class="other" style="width:${share(planned)}%"></i><i class="compute" style="width:${share(measured)}%"></i></td></tr>\n`;
  };
  return '<section class="wide" id="plan"><h2>Plan beside reality</h2><div class="scroll"><table class="plan"><thead><tr><th></th>' +
    '<th>planned</th><th>measured</th><th>ratio</th><th aria-hidden="true"></th></tr></thead><tbody>\n' +
    row('step time', 'time', run.summary && !plan.known ? run.summary.plan_seconds : plan.seconds, run.median_seconds) +
    row('tokens per second', 'rate', plan.rate, rate) +
    row('store reads per step', 'bytes', plan.read, meanOf('read')) + row('store writes per step', 'bytes', plan.write, meanOf('write')) +
    row('host to device per step', 'bytes', plan.up, meanOf('up')) + row('device to host per step', 'bytes', plan.down, meanOf('down')) +
    row('tier DEVICE', 'bytes', plan.device_bytes, plan.taken_device) + row('tier HOST', 'bytes', plan.host_bytes, plan.taken_host) +
    row('tier STORE', 'bytes', plan.store_bytes, null) +
    row('memory of the process, peak', 'bytes', memoryPlan, peak === null ? null : peak * 1e9) +
    '</tbody></table></div><p>Times are medians without the first step; bytes are means over all steps, saves included.</p></section>\n';
};
const drawTiers = () => {
  const colours = ['compute', 'update', 'copy', 'read', 'ranks', 'write', 'other'];
  if (plan.parts.length === 0) return '';
  return `<section class="wide" id="tiers"><h2>Memory by consumer, as planned</h2>${['device', 'host', 'store'].map(tier => {
    const parts = plan.parts.filter(part => part.tier === tier);
    const total = parts.reduce((sum, part) => sum + part.bytes, 0);
    return !(total > 0) ? '' : `<h3>${tier} <b>${number(total, 'bytes')}</b></h3>` +
      bar(parts.map((part, i) => [colours[i % colours.length], part.bytes / total])) +
      `<ul class="key">${parts.map((part, i) => `<li class="${colours[i % colours.length]}"><i></i>${escaped(part.what)} <b>${number(part.bytes, 'bytes')}</b></li>`).join('')}</ul>`;
  }).join('')}</section>\n`;
};
const drawEvents = () => {
  let rows = '';
  for (let i = 0, to; i < run.events.length; i = to) { // consecutive saves share a row
    const event = run.events[i];
    for (to = i + 1; event.kind === 'save' && to < run.events.length && run.events[to].kind === 'save';) to++;
    const end = run.events[to - 1];
    rows += `<tr class="${['warning', 'error'].includes(event.kind) ? event.kind : 'plain'}"><td>${event.step}${end.step !== event.step ? `\u2013${end.step}` : ''}</td>` +
      `<td>${escaped(event.kind)}</td><td>${escaped(event.text)}${to - i > 1 ? ` \u2026 ${escaped(end.text)} (${to - i})` : ''}</td></tr>\n`;
  }
  return '<section class="wide" id="events"><h2>Events</h2>' +
    (rows ? `<div class="scroll"><table><thead><tr><th>step</th><th>what</th><th></th></tr></thead><tbody>\n${rows}</tbody></table></div>` : '<p>No warnings, no saves.</p>') +
    (run.events_lost > 0 ? `<p>${run.events_lost} more are in the log.</p>` : '') +
    (run.restarts > 0 ? `<p>The run was resumed ${run.restarts} time${run.restarts === 1 ? '' : 's'}; ${run.repeated} step${run.repeated === 1 ? ' was' : 's were'} repeated.</p>` : '') +
    (run.torn ? '<p>The last line of the log is incomplete and was left out.</p>' : '') + '</section>\n';
};

// ---- the head ----

const drawHead = () => {
  const tile = (name, unit, value, against, other) => !known(value) ? ''
    : `<div class="tile"><span>${name}</span><b>${number(value, unit)}</b><small>${known(other) ? `${against} ${number(other, unit)}` : ''}</small></div>\n`;
  const facts = [
    known(plan.parameters) && `${number(plan.parameters, 'count')} parameters`, plan.precision, plan.optimizer,
    known(plan.batch) && known(plan.accum) && known(plan.length) && `${plan.accum} x ${plan.batch} rows of ${plan.length} tokens`,
    plan.ranks > 1 && `${plan.ranks} ranks, ZeRO ${plan.zero_stage}`, plan.device && `on ${plan.device}`,
    plan.acts && `activations: ${plan.acts}`, plan.timing && `updates: ${plan.timing}`, plan.time && `began ${plan.time}`,
  ];
  const all = !known(plan.steps) || last >= plan.steps;
  return `<header><p class="mark">tide report</p><h1>${escaped(run.name)}</h1>` +
    `<ul class="facts">${facts.filter(Boolean).map(fact => `<li>${escaped(fact)}</li>`).join('')}</ul>\n<div class="tiles">` +
    `<div class="tile"><span>Steps</span><b>${last}</b><small>${known(plan.steps) ? `of ${plan.steps}, ` : ''}` +
    `${!run.summary ? 'so far' : all ? 'all' : 'stopped'} in ${number(whole('seconds').sum, 'time')}</small></div>\n` +
    tile('Loss', 'plain', run.last_loss, 'from', run.first_loss) + tile('Eval loss', 'plain', run.last_eval, 'best', run.best_eval) +
    tile('Step time', 'time', run.median_seconds, 'planned', plan.seconds) + tile('Speed', 'rate', rate, 'planned', plan.rate) +
    tile('Memory, peak', 'gb', peak, 'planned', memoryPlan === null ? null : memoryPlan / 1e9) + '</div>\n</header>\n';
};
document.getElementById('page').innerHTML = drawHead() + '<main>\n' + drawCauses() + charts.map(drawChart).join('') + drawPlan() + drawTiers() + drawEvents() + '</main>\n' +
  `<footer>From <code>${escaped(run.path)}</code>, steps ${first} to ${last}${width > 1 ? `, ${width} per point` : ''}. Move over a chart, or focus one and use the arrow keys.</footer>\n`;

// ---- values at the pointer ----

const plots = [...document.querySelectorAll('.plot')];
const outputs = [...document.querySelectorAll('output[data-f]')];
outputs.forEach(output => { output.dataset.whole = output.textContent; });
let at = -1;
const show = bucket => {
  at = bucket;
  const from = first + bucket * width;
  const to = Math.min(from + width - 1, last);
  for (const output of outputs) {
    output.textContent = bucket < 0 ? output.dataset.whole : number(mean(output.dataset.f, bucket), output.dataset.u);
  }
  for (const plot of plots) {
    const cursor = plot.querySelector('.cursor');
    cursor.hidden = bucket < 0;
    cursor.dataset.step = from === to ? `step ${from}` : `steps ${from}\u2013${to}`;
    cursor.style.setProperty('--x', `${100 * (bucket + 0.5) / buckets}%`);
  }
};
for (const plot of plots) {
  plot.addEventListener('pointermove', event => {
    const box = plot.getBoundingClientRect();
    const bucket = Math.floor((event.clientX - box.left) / box.width * buckets);
    show(Math.max(0, Math.min(buckets - 1, bucket)));
  });
  plot.addEventListener('pointerleave', () => show(-1));
  plot.closest('figure').addEventListener('keydown', event => {
    const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 };
    const ends = { Home: 0, End: buckets - 1, Escape: -1 };
    if (event.key in moves) show(Math.max(0, Math.min(buckets - 1, (at < 0 ? (moves[event.key] < 0 ? buckets : -1) : at) + moves[event.key])));
    else if (event.key in ends) show(ends[event.key]);
    else return;
    event.preventDefault();
  });
  plot.closest('figure').addEventListener('blur', () => show(-1));
}
