// Texts to the features of a manyhot model: load(path), then features(vectoriser, text) -> [[column, value]].
import { readFileSync } from "node:fs";

export function load(path) {
  const data = JSON.parse(readFileSync(path, "utf8"));
  for (const part of [data.words, data.starts, data.characters]) {
    part.number = new Map(part.symbols.map((symbol, place) => [symbol, place]));
    part.place = part.keys.map((keys) => new Map(keys.map((key, place) => [key, place])));
  }
  return data;
}

// The same words and blanks as Python's \w and \s.
const WORD = /[\p{L}\p{N}_]+|[^\p{L}\p{N}_\s\x1c-\x1f\x85]|\ufeff/gu;
const BLANK = /[^\S\ufeff]|[\x1c-\x1f\x85]/u;

export function features(data, given) {
  const text = given.toLowerCase(), counts = new Map();
  const words = text.match(WORD) ?? [];
  const starts = words.flatMap((word) => data.start_lengths.map((n) => ([...word].length >= n ? [...word].slice(0, n).join("") : null)));
  const letters = [...["", ...text.split(BLANK).filter((word) => word !== ""), ""].join(" ")];
  let first = 0;
  for (const [part, symbols] of [[data.words, words], [data.starts, starts], [data.characters, letters]]) {
    const numbers = symbols.map((symbol) => part.number.get(symbol) ?? -1);
    let places = numbers.map(() => 0);
    part.place.forEach((known, n) => {
      const keys = numbers.slice(n).map((s, i) => (places[i] >= 0 && s >= 0 ? (n > 0 ? places[i] * part.symbols.length : 0) + s : -1));
      places = keys.map((key) => known.get(key) ?? -1);
      for (const place of places) if (place >= 0) counts.set(first + place, (counts.get(first + place) ?? 0) + 1);
      first += known.size;
    });
  }
  const values = [...counts].map(([column, count]) => [column, (1 + Math.log(count)) * data.idf[column]]);
  const norm = Math.sqrt(values.reduce((sum, [, value]) => sum + value * value, 0)) || 1;
  return values.map(([column, value]) => [column, value / norm]).sort((a, b) => a[0] - b[0]);
}
