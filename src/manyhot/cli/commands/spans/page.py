"""Texts with their spans as an HTML page: one self-contained file, light and dark, with nested spans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import Any

# With more texts than this, browsers show the page slowly.
MOST_TEXTS = 2000
# Step between hues in degrees; neighbours in the legend then differ clearly.
STEP = 137.508

STYLE = """
:root { color-scheme: light dark; --paper: #fbfaf7; --ink: #22252b; --soft: #6b7078; --line: #dcd9d0; --card: #ffffff; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 56rem; padding: 1.5rem 1rem 4rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, "Noto Sans", "Noto Sans CJK SC", sans-serif; }
h1 { font-size: 1.25rem; margin: 0 0 .25rem; }
p.about { color: var(--soft); margin: 0 0 1rem; }
.legend { position: sticky; top: 0; z-index: 1; display: flex; flex-wrap: wrap; gap: .35rem .6rem; padding: .6rem 0;
  margin-bottom: .5rem; background: var(--paper); border-bottom: 1px solid var(--line); }
.legend label { display: inline-flex; align-items: center; gap: .3rem; cursor: pointer; font-size: .875rem; }
.legend .n { color: var(--soft); }
article { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; margin: .75rem 0; padding: .8rem 1rem; }
article > header { color: var(--soft); font-size: .75rem; margin-bottom: .2rem; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; line-height: 2.15; }
.s { background: hsl(var(--h) 75% 90%); border: 1px solid hsl(var(--h) 45% 62%); border-radius: .3rem; padding: .12rem .28rem;
  -webkit-box-decoration-break: clone; box-decoration-break: clone; }
.s .s { padding: .02rem .2rem; }
.s > b, .key { font-size: .68rem; font-weight: 600; letter-spacing: .02em; color: hsl(var(--h) 65% 27%); }
.s > b { margin-left: .3rem; vertical-align: .08em; white-space: nowrap; user-select: none; }
.key { background: hsl(var(--h) 75% 90%); border: 1px solid hsl(var(--h) 45% 62%); border-radius: .3rem; padding: 0 .35rem; }
.from { border-left-style: dashed; } .on { border-right-style: dashed; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #16181c; --ink: #e6e4de; --soft: #9aa0a8; --line: #33373e; --card: #1d2025; }
  .s, .key { background: hsl(var(--h) 42% 24%); border-color: hsl(var(--h) 38% 46%); }
  .s > b, .key { color: hsl(var(--h) 75% 82%); }
}
@media print { .legend { position: static; } article { break-inside: avoid; } }
"""


def span_page(
    texts: Sequence[str], spans: Sequence[Sequence[Any]], *, title: str, about: str = "", ids: Sequence[str] | None = None
) -> str:
    """An HTML page of texts with marked spans.

    Args:
        texts: the texts.
        spans: the spans of each text, tuples that begin with (type, start, end), end exclusive; a fourth element is the score,
            shown as a tooltip.
        title: the heading.
        about: a line below the heading.
        ids: the name of each text.

    Example:
        >>> page = span_page(["Ada met Bob"], [[("PER", 0, 3)]], title="People")
        >>> 'Ada<b>PER</b></span> met Bob' in page
        True
    """
    counts = Counter(span[0] for row in spans for span in row)
    number = {name: place for place, name in enumerate(sorted(counts))}
    shown = min(len(texts), MOST_TEXTS)
    left = f" The first {shown:,} of {len(texts):,} texts are shown." if shown < len(texts) else ""
    hues = "\n".join(f".t{place} {{ --h: {place * STEP % 360:.0f}; }}" for place in number.values())
    # If a type is switched off, its spans lose their frame and label; the text stays.
    off = "\n".join(
        f"body:has(#c{place}:not(:checked)) .s.t{place} {{ background: none; border-color: transparent; padding-inline: 0; }}"
        f" body:has(#c{place}:not(:checked)) .s.t{place} > b {{ display: none; }}"
        for place in number.values()
    )
    legend = "".join(
        f'<label class="t{place}"><input type="checkbox" id="c{place}" checked>'
        f'<span class="key">{escape(str(name))}</span><span class="n">{counts[name]:,}</span></label>'
        for name, place in number.items()
    )
    articles = "\n".join(
        f"<article><header>{escape(ids[row]) if ids is not None else row + 1}</header>"
        f'<div class="text">{marked(texts[row], spans[row], number)}</div></article>'
        for row in range(shown)
    )
    return (
        '<!doctype html>\n<html lang="und">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{escape(title)}</title>\n<style>{STYLE}{hues}\n{off}\n</style>\n</head>\n<body>\n"
        f'<h1>{escape(title)}</h1>\n<p class="about">{escape(about)}{left}</p>\n'
        f'<div class="legend">{legend}</div>\n{articles}\n</body>\n</html>\n'
    )


def marked(text: str, spans: Sequence[Sequence[Any]], number: dict[Any, int]) -> str:
    """A text with its spans as nested elements; a span that crosses another's end is drawn in two parts."""
    waiting = sorted(((span[1], -span[2], str(span[0]), span, False) for span in spans), reverse=True)
    out: list[str] = []
    open_spans: list[tuple[int, Any, bool]] = []
    place = 0

    def close_until(stop: int) -> None:
        nonlocal place
        while open_spans and open_spans[-1][0] <= stop:
            end, span, goes_on = open_spans.pop()
            out.append(escape(text[place:end]))
            place = end
            out.append("</span>" if goes_on else f"<b>{escape(str(span[0]))}</b></span>")

    while waiting:
        start, minus_end, name, span, continued = waiting.pop()
        close_until(start)
        end = -minus_end
        limit = open_spans[-1][0] if open_spans else len(text)
        goes_on = end > limit
        if goes_on:
            # The second part begins where the enclosing span ends.
            waiting.append((limit, minus_end, name, span, True))
            waiting.sort(reverse=True)
            end = limit
        out.append(escape(text[place:start]))
        place = start
        classes = f"s t{number[span[0]]}{' from' if continued else ''}{' on' if goes_on else ''}"
        score = f' title="{escape(str(span[0]))}, score {span[3]:.2f}"' if len(span) > 3 else ""
        out.append(f'<span class="{classes}"{score}>')
        open_spans.append((end, span, goes_on))
    close_until(len(text))
    out.append(escape(text[place:]))
    return "".join(out)
