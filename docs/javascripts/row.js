// One row by hand: move scores and labels, see the loss, the gradient and the decision of every loss.
// The formulas are those of docs/losses.md; tests/website/test_row_page.py holds them against manyhot in a real browser.
"use strict";

const softplus = (x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));
const sigma = (s) => 1 / (1 + Math.exp(-s));
const total = (values) => values.reduce((sum, value) => sum + value, 0);

// log sum_i w_i e^{x_i}; terms of weight 0 are left out, no term is -Infinity.
function logSum(weights, exponents) {
  const kept = exponents.filter((_, i) => weights[i] > 0);
  if (!kept.length) return -Infinity;
  const top = Math.max(...kept);
  return top + Math.log(total(exponents.map((x, i) => (weights[i] > 0 ? weights[i] * Math.exp(x - top) : 0))));
}
const pos = (s, t) => logSum(t, s.map((x) => -x));
const neg = (s, t) => logSum(t.map((x) => 1 - x), s);
const sumLabels = (s, t, one) => total(s.map((score, i) => one(score, t[i])));
const scaled = (s, factor) => s.map((x) => x * factor);

// -log sigma(s) times its weight; a weight of 0 leaves it out.
const weighed = (weight, value) => (weight === 0 ? 0 : weight * value);

const byZero = (s) => s.map((score) => score > 0);
const byTop = (s, t) => {
  const k = Math.round(total(t));
  const order = s.map((_, i) => i).sort((a, b) => s[b] - s[a] || a - b).slice(0, k);
  return s.map((_, i) => order.includes(i));
};
const bySoftmax = (s) => s.map((score, i) => i === s.indexOf(Math.max(...s)));

function dice(s, t, power) {
  const p = s.map(sigma);
  const below = total(p.map((x) => x ** power)) + total(t.map((x) => x ** power));
  return 1 - (2 * total(p.map((x, i) => x * t[i])) + 1) / (below + 1);
}

const LOSSES = {
  zlpr: { title: "ZLPR", decide: byZero, value: (s, t) => softplus(pos(s, t)) + softplus(neg(s, t)) },
  tlpr: {
    title: "TLPR, threshold s0",
    decide: (s, t, s0) => s.map((score) => score > s0),
    value: (s, t, s0) => softplus(pos(s, t) + s0) + softplus(neg(s, t) - s0),
  },
  pairwise: { title: "pairwise", decide: byTop, value: (s, t) => softplus(pos(s, t) + neg(s, t)) },
  softmax: {
    title: "softmax",
    decide: bySoftmax,
    value: (s, t) => sumLabels(s, t, (score, held) => weighed(held, logSum(s.map(() => 1), s) - score)),
  },
  bce: {
    title: "BCE, summed",
    decide: byZero,
    value: (s, t) => sumLabels(s, t, (x, held) => held * softplus(-x) + (1 - held) * softplus(x)),
  },
  focal: {
    title: "focal, summed",
    decide: byZero,
    value: (s, t) =>
      sumLabels(s, t, (x, held) => {
        const p = sigma(x);
        return 0.25 * held * (1 - p) ** 2 * softplus(-x) + 0.75 * (1 - held) * p ** 2 * softplus(x);
      }),
  },
  asymmetric: {
    title: "asymmetric, summed",
    decide: byZero,
    value: (s, t) =>
      sumLabels(s, t, (x, held) => {
        const q = Math.max(sigma(x) - 0.05, 0);
        return held * (1 - sigma(x)) * softplus(-x) - (1 - held) * q ** 4 * Math.log1p(-q);
      }),
  },
  squared_hinge: {
    title: "squared hinge, summed",
    decide: byZero,
    value: (s, t) => sumLabels(s, t, (x, held) => held * Math.max(0, 1 - x) ** 2 + (1 - held) * Math.max(0, 1 + x) ** 2),
  },
  dice1: { title: "dice 1", decide: byZero, value: (s, t) => dice(s, t, 1) },
  dice2: { title: "dice 2", decide: byZero, value: (s, t) => dice(s, t, 2) },
  lsep: { title: "LSEP", decide: byTop, value: (s, t) => softplus(pos(s, t) + neg(s, t)) },
  decoupled: {
    title: "decoupled softmax",
    decide: byTop,
    value: (s, t) => (total(t) ? sumLabels(s, t, (x, held) => weighed(held, softplus(neg(s, t) - x))) / total(t) : 0),
  },
  two_way: {
    title: "two-way, along labels",
    decide: null,
    value: (s, t) => softplus(neg(s, t) + 4 * pos(scaled(s, 1 / 4), t)),
  },
};

// Central differences in double precision: right to about eight digits.
function gradient(value, s) {
  const step = 1e-5;
  return s.map((score, i) => {
    const moved = (by) => value(s.map((x, k) => (k === i ? score + by : x)));
    return (moved(step) - moved(-step)) / (2 * step);
  });
}

const NAMES = ["egg", "pan", "oven", "bread", "knife", "fish"];
const START = { scores: [2.5, -0.5, 1.0, -2.0, -3.0, -4.0], labels: [1, 1, 0, 0, 0, 0] };

function make(tag, attributes = {}, ...children) {
  const found = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) found.setAttribute(name, value);
  found.append(...children);
  return found;
}

function slider(name, label, low, high, step, value, update) {
  const input = make("input", { type: "range", min: low, max: high, step, value, "data-input": name, "aria-label": label });
  const shown = make("output", {}, Number(value).toFixed(2));
  input.addEventListener("input", () => {
    shown.textContent = Number(input.value).toFixed(2);
    update();
  });
  return [input, shown];
}

function bars(pulls, decided) {
  const reach = Math.max(...pulls.map(Math.abs), 1e-12);
  return pulls.map((pull, i) => {
    const size = Math.round((18 * Math.abs(pull)) / reach);
    const bar = make("span", { class: pull < 0 ? "row-up" : "row-down", style: `height:${size}px` });
    const cell = make("td", { class: "row-pull", "data-gradient": pull, title: `${NAMES[i]}: ${pull.toPrecision(4)}` }, bar);
    const sign = decided === null ? "?" : decided[i] ? "✓" : "·";
    cell.append(make("span", { class: "row-decided", "data-decided": decided === null ? "tune" : decided[i] }, sign));
    return cell;
  });
}

function start(place) {
  const scores = [];
  const labels = [];
  const body = make("tbody");
  const results = make("tbody");
  let threshold;

  function update() {
    const s = scores.map((input) => Number(input.value));
    const t = labels.map((input) => Number(input.value));
    const s0 = Number(threshold.value);
    results.replaceChildren(
      ...Object.entries(LOSSES).map(([name, loss]) => {
        const value = (row) => loss.value(row, t, s0);
        const decided = loss.decide ? loss.decide(s, t, s0) : null;
        const words = make("td", { class: "row-value", "data-value": value(s) }, value(s).toFixed(3));
        return make("tr", { "data-loss": name }, make("th", { scope: "row" }, loss.title), words, ...bars(gradient(value, s), decided));
      }),
    );
  }

  NAMES.forEach((name, i) => {
    const [score, scoreShown] = slider(`score-${i}`, `score of ${name}`, -6, 6, 0.05, START.scores[i], update);
    const [label, labelShown] = slider(`label-${i}`, `label ${name}`, 0, 1, 0.05, START.labels[i], update);
    scores.push(score);
    labels.push(label);
    body.append(
      make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, score, scoreShown), make("td", {}, label, labelShown)),
    );
  });
  const [s0, s0Shown] = slider("threshold", "threshold of TLPR", -3, 3, 0.05, 1, update);
  threshold = s0;
  body.append(make("tr", {}, make("th", { scope: "row" }, "s0"), make("td", {}, s0, s0Shown), make("td", {}, "threshold of TLPR")));

  const head = (...names) => make("thead", {}, make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, name))));
  const inputs = make("table", { class: "row-inputs" }, head("", "score", "label"), body);
  const outputs = make("table", { class: "row-results" }, head("loss", "value", ...NAMES), results);
  place.replaceChildren(inputs, make("div", { class: "row-scroll" }, outputs));
  update();
}

const place = document.getElementById("row-by-hand");
if (place) start(place);
