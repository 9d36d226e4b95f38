// page.js: values at the pointer, in all charts at once; arrow keys do the same. No network, no storage.
'use strict';
(() => {
  const values = JSON.parse(document.getElementById('values').textContent);
  const plots = [...document.querySelectorAll('.plot')];
  const outputs = [...document.querySelectorAll('output[data-f]')];
  outputs.forEach(output => { output.dataset.whole = output.textContent; });
  let at = -1;

  const digits = size => size >= 99.95 || size === 0 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : 3;
  const prefixed = (value, unit) => {
    const prefixes = ['', 'k', 'M', 'G', 'T', 'P'];
    let power = 0;
    for (; power < 5 && Math.abs(value) >= 999.5; power++) value /= 1000;
    const fixed = power === 0 && Number.isInteger(value) ? 0 : digits(Math.abs(value));
    return value.toFixed(fixed) + (unit || power ? ' ' : '') + prefixes[power] + unit;
  };
  const time = value => {
    const units = [[172800, 86400, 'd'], [5400, 3600, 'h'], [120, 60, 'min'], [0.9995, 1, 's'], [0.0009995, 1e-3, 'ms'], [0, 1e-6, 'us']];
    if (value === 0) return '0 s';
    const [, unit, name] = units.find(([from]) => Math.abs(value) >= from);
    return (value / unit).toFixed(digits(Math.abs(value / unit))) + ' ' + name;
  };
  const units = {
    plain: value => String(Number(value.toPrecision(4))), count: value => prefixed(value, ''), time,
    bytes: value => prefixed(value, 'B'), gb: value => prefixed(value * 1e9, 'B'), 
    rate: value => Math.abs(value) < 1e5 ? value.toFixed(digits(Math.abs(value))) + ' tok/s' : prefixed(value, 'tok/s'),
  };

  const show = bucket => {
    at = bucket;
    const from = values.first + bucket * values.width;
    const to = Math.min(from + values.width - 1, values.last);
    for (const output of outputs) {
      const value = (values.of[output.dataset.f] || [])[bucket];
      output.textContent = bucket < 0 ? output.dataset.whole : value == null ? '\u2013' : units[output.dataset.u](value);
    }
    for (const plot of plots) {
      const cursor = plot.querySelector('.cursor');
      cursor.hidden = bucket < 0;
      cursor.dataset.step = from === to ? `step ${from}` : `steps ${from}\u2013${to}`;
      cursor.style.setProperty('--x', `${100 * (bucket + 0.5) / values.buckets}%`);
    }
  };
  for (const plot of plots) {
    plot.addEventListener('pointermove', event => {
      const box = plot.getBoundingClientRect();
      const bucket = Math.floor((event.clientX - box.left) / box.width * values.buckets);
      show(Math.max(0, Math.min(values.buckets - 1, bucket)));
    });
    plot.addEventListener('pointerleave', () => show(-1));
    plot.closest('figure').addEventListener('keydown', event => {
      const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 };
      const ends = { Home: 0, End: values.buckets - 1, Escape: -1 };
      if (event.key in moves) show(Math.max(0, Math.min(values.buckets - 1, (at < 0 ? (moves[event.key] < 0 ? values.buckets : -1) : at) + moves[event.key])));
      else if (event.key in ends) show(ends[event.key]);
      else return;
      event.preventDefault();
    });
    plot.closest('figure').addEventListener('blur', () => show(-1));
  }
})();
