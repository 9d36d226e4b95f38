// drawing.js TIDE: runs the script of pages without a browser; `document` keeps the drawings.
'use strict';
const { execFileSync } = require('child_process');
const fs = require('fs');
const os = require('os');
const path = require('path');
const assert = require('assert');

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'drawing-'));
process.on('exit', () => fs.rmSync(folder, { recursive: true }));

// Makes the page of a log. Returns the drawings, and functions of the script.
const pageOf = text => {
  const log = path.join(folder, 'p.jsonl');
  fs.writeFileSync(log, text);
  execFileSync(process.argv[2], ['report', log]);
  const html = fs.readFileSync(path.join(folder, 'p.html'), 'utf8');
  for (const outside of ['http:', 'https:', 'src=', 'url(', '@import', 'fetch(', 'XMLHttpRequest', 'localStorage']) {
    assert(!html.includes(outside), `the page has ${outside}`);
  }
  const [, data] = html.match(/<script type="application\/json" id="run">([^<]*)<\/script>/);
  const [, script] = html.match(/<script>\n([^]*)<\/script><\/body>/);
  const elements = { run: { textContent: data }, page: { innerHTML: '' } };
  const on = {};
  const cursor = { dataset: {}, style: { setProperty: () => {} } };
  const plot = { addEventListener: () => {}, querySelector: () => cursor, closest: () => ({ addEventListener: (type, handle) => { on[type] = handle; } }) };
  const outputs = [{ dataset: { f: 'loss', u: 'plain' }, textContent: 'whole' }];
  const document = { getElementById: id => elements[id], querySelectorAll: what => what === '.plot' ? [plot] : outputs };
  const parts = new Function('document', `${script}\nreturn { number, tick, linear, logarithmic, place, escaped };`)(document);
  checkNesting(elements.page.innerHTML);
  checkPaths(elements.page.innerHTML);
  const press = key => on.keydown({ key, preventDefault: () => {} });
  return { html: elements.page.innerHTML, press, cursor, outputs, ...parts };
};

// Elements are nested.
const checkNesting = html => {
  const open = [];
  for (const [, end, name] of html.matchAll(/<(\/?)([a-z0-9]+)/g)) {
    if (end) assert.strictEqual(name, open.pop());
    else if (name !== 'path') open.push(name);
  }
  assert.strictEqual(open.length, 0);
};

// Coordinates of paths are in 0..1000, and texts have no NaN or missing value.
const checkPaths = html => {
  for (const [, d] of html.matchAll(/ d="([^"]*)"/g)) {
    assert(/^[-MLHVZh .0-9]*$/.test(d), d);
    for (const value of d.match(/-?[0-9]*\.?[0-9]+/g) || []) assert(value >= -0.5 && value <= 1000.5, d);
  }
  assert(!/NaN|Infinity|undefined|null/.test(html.replace(/<[^>]*>/g, '')), html);
};

const has = (page, ...parts) => parts.forEach(part => assert(page.html.includes(part), `${part}\n${page.html}`));

const cases = {
  // A whole run has the panels, and its texts do not become markup.
  whole() {
    const head = { run: { time: '2026-01-02T03:04:05Z', steps: 3, clip: 1, device_bytes: 10, host_bytes: 20 },
      plan: { asked: { model: 'm/<b>x', ranks: 2, zero_stage: 3, batch: 8, accum: 2, seq_len: 64, precision: 'fp16' }, parameters: 158e6,
        tiers: { device_bytes: 11e6, host_bytes: 21e6, store_bytes: 31e6 },
        parts: [{ tier: 'store', what: 'states', bytes: 3e7 }, { tier: 'host', what: 'slots', bytes: 1e7 }],
        step: { seconds: 0.5, tokens_per_second: 100, bottleneck: 'drive & more', store_read_bytes: 14e6 } },
      events: [{ kind: 'warning', text: '<i>careful</i></script>' }] };
    const page = pageOf([
      { step: 1, loss: 8, grad_norm: 2, lr: 1e-4, loss_scale: 65536, tokens: 50, seconds: 4, tokens_per_second: 12, store_read_bytes: 14000000,
        wait: { copy: 1 }, guesses: { right: 0, wrong: 1, seconds: 0.2 }, rss_gb: 0.03, ...head },
      { step: 2, loss: null, grad_norm: null, seconds: 0.5, eval_loss: 3, eval_reward_margin: 0.5, eval_reward_accuracy: 1,
        reward_chosen: 0.25, reward_rejected: -0.5, reward_margin: 0.75, reward_accuracy: 0.5 },
      { step: 3, loss: 2.5, grad_norm: 500, seconds: 0.5, guesses: { right: 1 },
        events: [{ kind: 'save', text: 'c-1' }, { kind: 'save', text: 'c-2' }, { kind: 'resumed', text: 'c-2' }] },
      { median_seconds: 0.5 }].map(line => JSON.stringify(line) + '\n').join(''));
    has(page, '<h1>&lt;b&gt;x</h1>', 'id="loss"', 'id="norm"', 'id="lr"', 'id="scale"', 'id="time"', 'id="bytes"', 'id="memory"', 'id="guesses"',
      'id="lost"', 'id="rewards"', 'id="accuracy"', '<li class="read"><i></i>eval margin <output data-f="eval_margin"', 'id="causes"', 'id="plan"', 'id="tiers"', 'id="events"', 'class="odd"', 'class="limit"', 'clip limit <b>1', 'drive &amp; more',
      '&lt;i&gt;careful&lt;/i&gt;&lt;/script&gt;', 'class="resumed"', '2 ranks, ZeRO 3', 'c-1 \u2026 c-2 (2)', 'of 3, all in', '<span>Eval loss</span><b>3</b>',
      'class="dots read"', '158 M parameters', '2 x 8 rows of 64 tokens', '<li class="copy"><i></i>copies <b>20.0 %</b> <span>1.00 s</span></li>',
      '<th scope="row">step time</th><td>500 ms</td><td>500 ms</td><td>1.00</td>', '<h3>store <b>30.0 MB</b></h3>');
  },
  small_and_odd() {
    for (const text of ['{"step":1}\n', '{"step":9007199254740992,"loss":1}\n', '{"step":1,"loss":0,"seconds":0,"lr":0}\n',
      '{"step":1,"loss":1e308,"lr":1e308}\n{"step":2,"loss":-1e308,"lr":-1}\n', '{"step":1,"loss":null}\n{"step":1000000000,"loss":null}\n',
      '{"step":1,"grad_norm":1e-30}\n{"step":2,"grad_norm":1e30}\n', '{"step":5,"seconds":1e-9,"wait":{"copy":5}}\n']) pageOf(text);
    const page = pageOf('{"step":1}\n');
    assert(!page.html.includes('<figure'));
    has(page, 'No warnings, no saves.');
  },
  // Values far above the others are cut, as a text says.
  cut() {
    let text = '';
    for (let i = 1; i <= 60; i++) text += `{"step":${i},"seconds":${i === 1 ? 90 : 1}}\n`;
    has(pageOf(text), 'Cut at the top: up to 90.0 s.');
  },
  // A point is in the middle of its steps at their mean; a band contains the steps.
  places() {
    const page = pageOf('{"step":11}\n{"step":12,"loss":4}\n{"step":14,"loss":0}\n{"step":15,"loss":8}\n{"step":20}\n');
    has(page, '<path class="dots compute" d="M150.0 500.0h.01"/>', '<path class="line compute" d="M150.0 500.0M350.0 1000.0L450.0 0.0"/>');
    let text = '';
    for (let i = 1; i <= 961; i++) text += `{"step":${i},"loss":${i % 3 * 4}}\n`;
    const many = pageOf(text);
    has(many, '>steps 1 to 961'.slice(1), '3 per point', '<path class="band compute" d="M1.6 0.0L');
    has(pageOf('{"step":1,"seconds":4,"wait":{"copy":1}}\n{"step":2,"seconds":4,"wait":{"copy":1}}\n'), '<path class="area compute" d="M0.00 1000.0V250.0H');
  },
  // Arrow keys show the values of a point, Escape those of the run.
  keys() {
    const page = pageOf('{"step":4,"loss":2.5}\n{"step":5}\n{"step":6,"loss":1}\n');
    const said = key => { page.press(key); return `${page.cursor.dataset.step} ${page.outputs[0].textContent}`; };
    assert.deepStrictEqual(['ArrowRight', 'ArrowRight', 'End', 'PageDown', 'Home'].map(said),
      ['step 4 2.5', 'step 5 \u2013', 'step 6 1', 'step 6 1', 'step 4 2.5']);
    assert.strictEqual(page.cursor.hidden, false);
    page.press('Escape');
    assert.deepStrictEqual([page.cursor.hidden, page.outputs[0].textContent], [true, 'whole']);
  },
  // An axis has round ends around the range.
  linear() {
    const { linear, place } = pageOf('{"step":1}\n');
    const axis = linear(2.1, 8.3, 4);
    assert.deepStrictEqual([axis.low, axis.high, axis.ticks.length, place(axis, 6), place(axis, 99), place(axis, -99)], [2, 10, 5, 0.5, 1, 0]);
    const one = linear(5, 5, 4);
    assert(one.low < 5 && one.high > 5);
    assert.strictEqual(linear(0, 0, 4).low, 0);
    const values = [0, -0, 1, -1, 1e-300, -1e-300, Number.MIN_VALUE, Number.MAX_VALUE, -Number.MAX_VALUE, 1e15, 1e15 + 1, NaN, Infinity, -Infinity];
    for (const low of values) for (const high of values) {
      if (low > high) continue;
      const any = linear(low, high, 4);
      assert(Number.isFinite(any.low) && any.low < any.high && any.ticks.length >= 2, `${low} ${high}`);
      any.ticks.forEach((value, i) => assert(place(any, value) >= 0 && place(any, value) <= 1 && (i === 0 || value > any.ticks[i - 1])));
    }
  },
  logarithmic() {
    const { logarithmic, place } = pageOf('{"step":1}\n');
    const axis = logarithmic(0.02, 700);
    assert.deepStrictEqual([axis.low, axis.high, place(axis, 0)], [0.01, 1000, 0]);
    assert(Math.abs(place(axis, 1) - 0.4) < 1e-9);
    for (const any of [logarithmic(10, 10), logarithmic(1e-300, 1e300)]) assert(any.low < any.high && any.ticks.length >= 2);
  },
  // Numbers have units and few digits.
  numbers() {
    const { number, tick, escaped } = pageOf('{"step":1}\n');
    for (const [value, unit, text] of [[2.66667, 'plain', '2.667'], [5e-5, 'plain', '5e-05'], [123456, 'plain', '1.235e+05'], [0.0001, 'plain', '0.0001'],
      [0, 'plain', '0'], [9999.9, 'plain', '1e+04'], [0, 'time', '0 s'], [0.25, 'time', '250 ms'], [9.9999e-3, 'time', '10.0 ms'], [1.5, 'time', '1.50 s'],
      [3e-5, 'time', '30.0 us'], [119, 'time', '119 s'], [600, 'time', '10.0 min'], [7200, 'time', '2.00 h'], [864000, 'time', '10.0 d'],
      [12, 'count', '12'], [1234567, 'count', '1.23 M'], [0, 'bytes', '0 B'], [999.6, 'bytes', '1.00 kB'], [2.2e9, 'bytes', '2.20 GB'], [0.161, 'gb', '161 MB'],
      [1e18, 'bytes', '1000 PB'], [3368.4, 'rate', '3368 tok/s'], [250000, 'rate', '250 ktok/s'], [null, 'time', '\u2013'], [Infinity, 'plain', '\u2013']]) {
      assert.strictEqual(number(value, unit), text);
    }
    for (const [value, unit, text] of [[2, 'time', '2 s'], [0.5, 'count', '0.5'], [2.5e9, 'bytes', '2.5 GB'], [1.5e-5, 'plain', '1.5e-05'], [100, 'count', '100']]) {
      assert.strictEqual(tick(value, unit), text);
    }
    assert.strictEqual(escaped('<script>"&\x01\n\''), '&lt;script&gt;&quot;&amp;  \'');
  },
};

console.log(`1..${Object.keys(cases).length}`);
Object.entries(cases).forEach(([name, check], i) => {
  try {
    check();
    console.log(`ok ${i + 1} - ${name}`);
  } catch (error) {
    process.exitCode = 1;
    console.log(`not ok ${i + 1} - ${name}\n${String(error.stack).slice(0, 3000).replace(/^/gm, '# ')}`);
  }
});
