"use strict";
(() => {
  const byId = (name) => document.getElementById(name);
  const read = (name) => (byId(name) ? JSON.parse(byId(name).textContent) : null);

  /* theme: as the system says, until the button is pressed */
  const themeButton = byId("theme");
  const isDark = () => {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  };
  const nameTheme = () => { themeButton.textContent = isDark() ? "Light" : "Dark"; };
  if (themeButton) {
    themeButton.hidden = false;
    nameTheme();
    themeButton.addEventListener("click", () => {
      document.documentElement.dataset.theme = isDark() ? "light" : "dark";
      nameTheme();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", nameTheme);
  }

  /* tables that can be sorted: a button in each heading; numbers first largest, words first smallest */
  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const numeric = head.classList.contains("n");
        const before = head.getAttribute("aria-sort");
        const order = before ? (before === "ascending" ? "descending" : "ascending") : numeric ? "descending" : "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", order);
        const sign = order === "ascending" ? 1 : -1;
        const keyed = [...body.rows].map((row) => {
          const cell = row.cells[column];
          const value = cell.dataset.value ?? cell.textContent.trim();
          return [numeric ? (value === "" ? NaN : Number(value)) : value, row];
        });
        keyed.sort(([a], [b]) => {
          if (!numeric) return sign * a.localeCompare(b);
          if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
          return sign * (a - b);
        });
        body.append(...keyed.map(([, row]) => row));
      });
    });
  }

  /* search within a table */
  for (const field of document.querySelectorAll("input[data-searches]")) {
    const body = byId(field.dataset.searches).tBodies[0];
    const told = byId(field.dataset.tells);
    const search = () => {
      const wanted = field.value.trim().toLocaleLowerCase();
      let shown = 0;
      for (const row of body.rows) {
        row.hidden = wanted !== "" && !row.cells[0].textContent.toLocaleLowerCase().includes(wanted);
        shown += row.hidden ? 0 : 1;
      }
      told.textContent = wanted ? `${shown.toLocaleString("en")} of ${body.rows.length.toLocaleString("en")}` : "";
    };
    field.addEventListener("input", search);
    search();
  }

  /* panels of which one is shown, by what the selects say */
  const selects = [...document.querySelectorAll("select[data-chooses]")];
  const choosePanels = () => {
    const wanted = Object.fromEntries(selects.map((select) => [select.dataset.chooses, select.value]));
    for (const panel of document.querySelectorAll("[data-panel]")) {
      const own = JSON.parse(panel.dataset.panel);
      panel.hidden = Object.keys(own).some((key) => key in wanted && wanted[key] !== own[key]);
    }
  };
  for (const select of selects) select.addEventListener("change", choosePanels);
  if (selects.length) choosePanels();

  /* the slider */
  const slider = read("slider-data");
  if (!slider) return;
  const size = slider.shifts.length;
  const count = slider.positive.length;

  const unpack = (text) => {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const steps = new Float64Array(count * size);
    let at = 0, value = 0, scale = 1, zeros = false;
    for (const byte of bytes) {
      value += (byte & 127) * scale;
      scale *= 128;
      if (byte & 128) continue;
      if (zeros) { at += value; zeros = false; }
      else if (value === 0) zeros = true;
      else steps[at++] = value;
      value = 0;
      scale = 1;
    }
    for (let label = 0; label < count; label++) {
      for (let place = size - 2; place >= 0; place--) steps[label * size + place] += steps[label * size + place + 1];
    }
    return steps;
  };
  const hits = unpack(slider.hits);
  const wrong = unpack(slider.wrong);
  const start = slider.own >= 0 ? slider.own : slider.shifts.reduce((best, x, i, all) => (Math.abs(x) < Math.abs(all[best]) ? i : best), 0);
  const at = new Int32Array(count).fill(start);
  let restAt = start;

  const range = byId("slider");
  const which = byId("slider-label");
  const ratio = (part, whole) => (whole > 0 ? part / whole : 0);
  const measure = () => {
    const rest = slider.rest;
    let found = rest.hits[restAt], said = rest.predicted[restAt], true_ = rest.positive, f1 = rest.f1_sum[restAt];
    let together = rest.labels === 0 || restAt === at[0];
    for (let label = 0; label < count; label++) {
      const place = label * size + at[label];
      const own = hits[place], predicted = own + wrong[place], positive = slider.positive[label];
      found += own;
      said += predicted;
      true_ += positive;
      f1 += ratio(2 * own, predicted + positive);
      together = together && at[label] === at[0];
    }
    return {
      "micro-F1": ratio(2 * found, said + true_),
      "macro-F1": ratio(f1, count + rest.labels),
      "micro-precision": ratio(found, said),
      "micro-recall": ratio(found, true_),
      "labels": ratio(said, slider.rows),
      "SubACC": together ? ratio(slider.exact_rows[at[0]], slider.rows) : null,
      "empty": together ? ratio(slider.empty_rows[at[0]], slider.rows) : null,
    };
  };
  const minus = (text) => text.replace("-", "−");
  const signed = (x, digits) => (x < 0 ? "−" : "+") + Math.abs(x).toFixed(digits);
  const base = measure();
  const digits = Math.max(...slider.shifts.map((x) => (String(x).split(".")[1] || "").length));
  const show = () => {
    const now = measure();
    for (const [name, value] of Object.entries(now)) {
      const output = byId(`slider-${name}`);
      output.textContent = value === null ? "–" : value.toFixed(name === "labels" ? 2 : 4);
      const change = value === null || base[name] === null ? 0 : value - base[name];
      byId(`change-${name}`).textContent = Math.abs(change) < 5e-5 ? "" : signed(change, name === "labels" ? 2 : 4);
    }
    const chosen = which.value === "" ? -1 : Number(which.value);
    const place = chosen < 0 ? restAt : at[chosen];
    const shift = slider.shifts[place];
    let words = place === slider.own ? "the model's own thresholds" : `all thresholds ${signed(shift, digits)}`;
    if (slider.own < 0) words = `score above ${minus(shift.toFixed(digits))}`;
    if (chosen >= 0) {
      const own = hits[chosen * size + place], predicted = own + wrong[chosen * size + place];
      const positive = slider.positive[chosen], threshold = slider.threshold ? slider.threshold[chosen] : 0;
      const at_ = threshold === null ? "never predicted by the rule" : `score above ${minus((threshold + shift).toFixed(3))}`;
      words = `${at_}: precision ${ratio(own, predicted).toFixed(3)}, recall ${ratio(own, positive).toFixed(3)}, F1 ${ratio(2 * own, predicted + positive).toFixed(3)}`;
    }
    byId("slider-words").textContent = words;
    range.setAttribute("aria-valuetext", words);
    const chart = byId("slider-chart");
    const left = Number(chart.dataset.left), right = Number(chart.dataset.right);
    const x = left + ((shift - slider.shifts[0]) / (slider.shifts[size - 1] - slider.shifts[0])) * (right - left);
    for (const end of ["x1", "x2"]) byId("slider-cursor").setAttribute(end, x.toFixed(2));
  };
  const names = [...byId("labels-table").tBodies[0].rows].sort((a, b) => a.dataset.place - b.dataset.place);
  names.forEach((row, place) => {
    const option = document.createElement("option");
    option.value = String(place);
    option.textContent = row.cells[0].textContent;
    which.append(option);
  });
  range.addEventListener("input", () => {
    const place = Number(range.value);
    if (which.value === "") { at.fill(place); restAt = place; }
    else at[Number(which.value)] = place;
    show();
  });
  which.addEventListener("change", () => {
    range.value = String(which.value === "" ? restAt : at[Number(which.value)]);
    show();
  });
  byId("slider-reset").addEventListener("click", () => {
    at.fill(start);
    restAt = start;
    range.value = String(start);
    show();
  });
  byId("slider-panel").hidden = false;
  range.value = String(start);
  show();
})();
