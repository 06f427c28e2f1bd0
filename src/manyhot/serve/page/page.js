"use strict";
// The page of `manyhot serve`. All text from models and users enters the document as text, never as markup.
const at = (id) => document.getElementById(id);
const TOP = 15;
const TOP_SPANS = 300; // candidates for the slider
let about = null;
let shown = null; // the last prediction and its input
let cut = null; // the threshold of the slider; null is the model's own rule

function make(tag, text, name) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (name) element.className = name;
  return element;
}

function complain(message) {
  at("problem").textContent = message;
  at("problem").hidden = !message;
}

async function ask(path, body) {
  const answer = await fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  const told = await answer.json();
  if (!answer.ok) throw new Error(`${answer.status}: ${told.error}`);
  return told;
}

// The user's input in the form that the server reads.
function parseRow(line) {
  if (about.kind !== "features") return line;
  const text = line.trim();
  if (text.startsWith("[") || text.startsWith("{")) return JSON.parse(text);
  return text.split(/[,;\t]|\s+/).filter((part) => part !== "").map((part) => {
    if (["?", "na", "nan", "null"].includes(part.toLowerCase())) return null;
    if (Number.isNaN(Number(part))) throw new Error(`“${part}” is not a number`);
    return Number(part);
  });
}

function pixels() {
  const canvas = at("canvas");
  if (canvas.hidden) throw new Error("choose a picture first");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const plane = (value) => Array.from({ length: canvas.height }, (_, y) => Array.from({ length: canvas.width }, (_, x) => value((y * canvas.width + x) * 4)));
  if (about.features === 1) return [plane((i) => Math.round(0.299 * data[i] + 0.587 * data[i + 1] + 0.114 * data[i + 2]))];
  if (about.features === 3) return [0, 1, 2].map((channel) => plane((i) => data[i + channel]));
  throw new Error(`the model reads ${about.features} channels, a picture has 1 or 3; use POST /predict`);
}

async function takePicture() {
  const file = at("picture").files[0];
  if (!file) return;
  const image = await createImageBitmap(file).catch(() => null);
  if (!image) return complain("the browser cannot read this file as a picture");
  const most = Math.sqrt(65536 / 3);
  const scale = Math.min(1, most / Math.max(image.width, image.height));
  const canvas = at("canvas");
  [canvas.width, canvas.height] = [image.width, image.height].map((size) => Math.max(1, Math.round(size * scale)));
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.hidden = false;
  complain("");
}

async function predict(event) {
  if (event) event.preventDefault();
  at("status").textContent = "predicting…";
  complain("");
  try {
    const input = about.kind === "images" ? pixels() : parseRow(at("text").value);
    const started = performance.now();
    const told = await ask("predict", { inputs: [input], top: Math.min(about.kind === "spans" ? TOP_SPANS : TOP, about.limits.max_labels), scores: true });
    at("status").textContent = `predicted in ${Math.round(performance.now() - started)} ms`;
    shown = { input, ...told.predictions[0] };
    at("why").hidden = true;
    at("result").hidden = false;
    draw();
  } catch (error) {
    at("status").textContent = "";
    complain(error.message);
  }
}

// A score on the scale of the slider and the bars: its probability or, if the model only ranks, its position in the range of scores.
function place(candidate, value = candidate.score) {
  if (candidate.probability !== null && value === candidate.score) return candidate.probability;
  const scores = shown.top.map((each) => each.score);
  const [low, high] = [Math.min(...scores), Math.max(...scores)];
  return high > low ? Math.min(1, Math.max(0, (value - low) / (high - low))) : 0.5;
}

const ownCut = (candidate) => (candidate.line !== null && candidate.line !== undefined ? candidate.line : candidate.threshold === null ? null : place(candidate, candidate.threshold));
const said = (candidate) => (cut === null ? candidate.predicted : place(candidate) > cut);

function draw() {
  at("rule-words").textContent = cut === null ? "the model's own rule" : about.probabilities ? `probability above ${cut.toFixed(3)}` : `above ${Math.round(cut * 100)} % of the range`;
  at("rule").setAttribute("aria-valuetext", at("rule-words").textContent);
  if (about.kind === "spans") return drawSpans();
  if (cut === null) {
    // The slider starts at the rule's threshold if it is the same for all labels.
    const lines = new Set(shown.top.map(ownCut));
    at("rule").value = lines.size === 1 && !lines.has(null) ? Math.round(1000 * [...lines][0]) : 500;
  }
  const list = at("labels");
  const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.label : undefined;
  list.replaceChildren();
  const more = shown.labels.filter((label) => !shown.top.some((each) => each.label === label));
  for (const candidate of shown.top) list.append(item(candidate));
  if (focused !== undefined) {
    const again = [...list.querySelectorAll("button")].find((button) => button.dataset.label === focused);
    if (again) again.focus();
  }
  const labels = shown.top.filter(said).map((each) => each.label).concat(cut === null ? more : []);
  at("summary").textContent = labels.length ? `${labels.length} of ${about.labels.length} labels: ${labels.join(", ")}` : `None of ${about.labels.length} labels.`;
}

function item(candidate) {
  const row = make("li", undefined, said(candidate) ? "yes" : "no");
  const button = make("button", candidate.label);
  button.type = "button";
  button.dataset.label = candidate.label;
  explains(button, "Explain this label", () => explain(candidate.label, (told) => told.labels[0]));
  const track = make("div", undefined, "track");
  track.setAttribute("aria-hidden", "true");
  const fill = make("div", undefined, "fill");
  fill.style.width = `${100 * place(candidate)}%`;
  track.append(fill);
  const line = cut === null ? ownCut(candidate) : cut;
  if (line !== null) {
    const mark = make("div", undefined, "cut");
    mark.style.left = `calc(${100 * line}% - 1px)`;
    track.append(mark);
  }
  const value = candidate.probability === null ? `score ${candidate.score.toFixed(2)}` : candidate.probability.toFixed(3);
  row.append(button, track, make("span", `${value}, ${said(candidate) ? "yes" : "no"}`, "value"));
  return row;
}

// A button shows an explanation, if the model has any.
function explains(button, title, ask) {
  button.disabled = about.explains === null;
  if (button.disabled) return;
  button.title = title;
  button.addEventListener("click", ask);
}

function drawSpans() {
  const spans = cut === null ? shown.spans : shown.top.filter((span) => span.probability > cut).sort((a, b) => a.start - b.start || b.end - a.end);
  const letters = Array.from(shown.input);
  const marked = at("marked");
  marked.replaceChildren(...nested(letters, spans, 0, letters.length));
  marked.hidden = false;
  const body = at("spans").tBodies[0];
  body.replaceChildren(...spans.map((span) => {
    const row = make("tr");
    const cell = make("td");
    const button = make("button", letters.slice(span.start, span.end).join(""));
    button.type = "button";
    const same = (other) => ["type", "start", "end"].every((key) => other[key] === span[key]);
    explains(button, "Explain this span", () => explain(span.type, (told) => told.spans.find(same)));
    cell.append(button);
    row.append(cell, make("td", span.type), make("td", span.probability.toFixed(3), "number"));
    return row;
  }));
  at("spans").hidden = !spans.length;
  at("summary").textContent = spans.length ? `${spans.length} span${spans.length === 1 ? "" : "s"}` : "No spans.";
}

// Text between two positions with its spans marked, inner spans inside outer ones. If two spans cross, only the first is marked.
function nested(letters, spans, start, end) {
  const parts = [];
  let here = start;
  const inside = spans.filter((span) => span.start >= start && span.end <= end).sort((a, b) => a.start - b.start || b.end - a.end);
  while (inside.length) {
    const span = inside.shift();
    if (span.start < here) continue;
    parts.push(document.createTextNode(letters.slice(here, span.start).join("")));
    const within = inside.filter((other) => other.end <= span.end && !(other.start === span.start && other.end === span.end && other.type === span.type));
    const mark = make("mark");
    mark.append(...nested(letters, within, span.start, span.end), make("small", span.type));
    parts.push(mark);
    here = span.end;
  }
  parts.push(document.createTextNode(letters.slice(here, end).join("")));
  return parts;
}

async function explain(label, choose) {
  complain("");
  at("status").textContent = "explaining…";
  try {
    const exact = about.explains === "exactly";
    const told = await ask("explain", { inputs: [shown.input], labels: [label], top: about.kind === "spans" ? 20 : 1, most: 12, steps: exact ? 1 : 16 });
    const found = choose(told.explanations[0]);
    if (!found) throw new Error("only the best 20 spans of a type are explained; this one is not among them");
    at("status").textContent = "explained";
    drawWhy(found, exact);
  } catch (error) {
    at("status").textContent = "";
    complain(error.message);
  }
}

function drawWhy(found, exact) {
  at("why-heading").textContent = about.kind === "spans" ? `Why is “${found.text}” marked as ${found.type}?` : `Why ${found.label}?`;
  const threshold = found.threshold === null ? "" : `, threshold ${found.threshold.toFixed(3)}`;
  const how = exact ? "The parts add up to the score exactly." : `Gradient times input; ${found.error.toFixed(3)} of the score is unexplained${found.reliable ? "" : ", which is too much to rely on the parts"}.`;
  at("why-words").textContent = `Score ${found.score.toFixed(3)}${threshold}. ${how}`;
  const texts = ["texts", "spans"].includes(about.kind);
  at("why-text").hidden = at("why-legend").hidden = !texts;
  if (texts) at("why-text").replaceChildren(...highlighted(Array.from(shown.input), found.words));
  const rows = [["(baseline)", found.base], ...found.contributions.map((each) => [each.feature, each.part])];
  if (Math.abs(found.rest) > 5e-4) rows.push(["(all others)", found.rest]);
  if (Math.abs(found.error) > 5e-4) rows.push(["(unexplained)", found.error]);
  at("why-table").tBodies[0].replaceChildren(...rows.map(([name, part]) => {
    const row = make("tr");
    row.append(make("td", name), make("td", `${part >= 0 ? "+" : "−"}${Math.abs(part).toFixed(3)}`, "number"));
    return row;
  }));
  at("why").hidden = false;
  at("why-heading").focus();
}

function highlighted(letters, words) {
  const most = Math.max(...words.map((word) => Math.abs(word[2])), 0);
  const parts = [];
  let here = 0;
  for (const [start, end, part] of words) {
    if (start < here || Math.abs(part) < 0.05 * most || part === 0) continue;
    parts.push(document.createTextNode(letters.slice(here, start).join("")));
    const span = make("span", letters.slice(start, end).join(""), `${part > 0 ? "for" : "against"}${Math.abs(part) < 0.3 * most ? " weak" : ""}`);
    span.title = `${part > 0 ? "+" : "−"}${Math.abs(part).toFixed(3)}`;
    span.append(hiddenWord(part));
    parts.push(span);
    here = end;
  }
  parts.push(document.createTextNode(letters.slice(here).join("")));
  return parts;
}

// Colour alone says nothing to a screen reader.
const hiddenWord = (part) => make("span", part > 0 ? " (for)" : " (against)", "spoken");

// Rows of an uploaded file: JSON lines, CSV or TSV with a header, otherwise one row per line.
function rowsOf(name, content) {
  const lines = content.split(/\r\n|\r|\n/);
  if (lines[lines.length - 1] === "") lines.pop();
  if (/\.jsonl?$/.test(name)) {
    return lines.filter((line) => line.trim()).map((line) => {
      const row = JSON.parse(line);
      if (Array.isArray(row) || typeof row !== "object" || row === null) return row;
      return "text" in row ? row.text : "features" in row ? row.features : "image" in row ? row.image : row;
    });
  }
  if (/\.[ct]sv$/.test(name)) {
    const table = cells(content, name.endsWith("tsv") ? "\t" : ",");
    const head = table.shift() || [];
    if (about.kind === "features") {
      const named = Array.isArray(about.features) && about.features.every((feature) => head.includes(feature));
      if (named) return table.map((row) => Object.fromEntries(about.features.map((feature) => [feature, number(row[head.indexOf(feature)])])));
      return [head, ...table].filter((row) => row.some((cell) => cell !== "")).slice(Number.isNaN(Number(head[0])) ? 1 : 0).map((row) => row.map(number));
    }
    const column = Math.max(0, head.findIndex((cell) => /^text$/i.test(cell)));
    return table.map((row) => row[column] || "");
  }
  return lines.map(parseRow);
}

const number = (cell) => (cell === undefined || ["", "?", "na", "nan", "null"].includes(cell.toLowerCase()) ? null : Number(cell));

function cells(content, delimiter) {
  const rows = [];
  let row = [], cell = "", quoted = false;
  for (let i = 0; i < content.length; i++) {
    const letter = content[i];
    if (quoted) {
      if (letter !== '"') cell += letter;
      else if (content[i + 1] === '"') { cell += '"'; i++; } else quoted = false;
    } else if (letter === '"' && cell === "") quoted = true;
    else if (letter === delimiter) { row.push(cell); cell = ""; }
    else if (letter === "\n" || letter === "\r") {
      if (letter === "\r" && content[i + 1] === "\n") i++;
      row.push(cell); rows.push(row); row = []; cell = "";
    } else cell += letter;
  }
  if (cell !== "" || row.length) { row.push(cell); rows.push(row); }
  return rows;
}

// A part has at most the rows, and about half of the bytes, that a request may have.
function partFrom(rows, start) {
  let end = start, bytes = 0;
  while (end < rows.length && end - start < about.limits.max_rows && (end === start || bytes < about.limits.max_body / 2)) bytes += 4 * JSON.stringify(rows[end++]).length;
  return rows.slice(start, end);
}

async function batch() {
  const file = at("file").files[0];
  if (!file) return;
  at("downloads").hidden = true;
  complain("");
  const progress = at("batch-progress");
  try {
    const rows = rowsOf(file.name.toLowerCase(), await file.text());
    if (!rows.length) throw new Error("this file has no rows");
    progress.hidden = false;
    const found = [];
    while (found.length < rows.length) {
      found.push(...(await ask("predict", { inputs: partFrom(rows, found.length) })).predictions);
      progress.value = found.length / rows.length;
      at("batch-status").textContent = `${found.length} of ${rows.length} rows`;
    }
    offer(found);
  } catch (error) {
    at("batch-status").textContent = "";
    complain(`${file.name}: ${error.message}`);
  }
  progress.hidden = true;
}

function offer(found) {
  const lines = found.map((each, row) => JSON.stringify({ row, ...each }));
  const quote = (cell) => (/[",\n\r]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
  const spans = about.kind === "spans";
  const text = (each) => (spans ? each.spans.map((span) => `${span.type}:${span.start}-${span.end}`) : each.labels).join("|");
  const table = [`row,${spans ? "spans" : "labels"}`, ...found.map((each, row) => `${row},${quote(text(each))}`)];
  for (const [id, content, kind] of [["download-jsonl", lines, "application/jsonl"], ["download-csv", table, "text/csv"]]) {
    URL.revokeObjectURL(at(id).href);
    at(id).href = URL.createObjectURL(new Blob([`${content.join("\n")}\n`], { type: kind }));
  }
  at("downloads").hidden = false;
}

function theme() {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  at("theme").textContent = dark ? "Dark theme" : "Light theme";
}

async function start() {
  if (matchMedia("(prefers-color-scheme: dark)").matches) at("theme").textContent = "Light theme";
  about = await (await fetch("about")).json();
  const things = about.kind === "spans" ? "types of spans" : "labels";
  at("about").textContent = `${about.body} model, ${about.labels.length} ${things}`;
  if (about.kind === "features") {
    at("text-label").textContent = "Row of features";
    const names = Array.isArray(about.features) ? about.features : null;
    const wanted = names ? `${names.length} numbers in this order: ${names.slice(0, 8).join(", ")}${names.length > 8 ? ", …" : ""}` : `${about.features} numbers`;
    at("text-hint").textContent = `${wanted}; ? is a missing value. JSON works too. Ctrl + Enter predicts.`;
  }
  at("text-part").hidden = about.kind === "images";
  at("picture-part").hidden = about.kind !== "images";
  at("ask").addEventListener("submit", predict);
  at("picture").addEventListener("change", takePicture);
  at("text").addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) predict(event); });
  at("rule").value = 500;
  at("rule").addEventListener("input", () => { cut = Number(at("rule").value) / 1000; if (shown) draw(); });
  at("rule-reset").addEventListener("click", () => { cut = null; if (shown) draw(); });
  at("theme").addEventListener("click", theme);
  at("file").addEventListener("change", batch);
  document.body.dataset.ready = "yes";
}

start().catch((error) => complain(`the server does not answer: ${error.message}`));
