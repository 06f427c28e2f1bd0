"""The layout of every report page: one self-contained file with its style and script, without network requests."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from manyhot.report.parts.markup import Markup, element, join


@cache
def _part(name: str) -> str:
    return (files("manyhot.report.parts") / name).read_text(encoding="utf-8")


class Section:
    """A section of a page.

    Args:
        name: its anchor.
        title: its heading.
        about: a sentence below the heading, or None.
        *content: its content.
        short: the text of links to it; default: the title.
    """

    def __init__(self, name: str, title: str, about: Any, *content: Any, short: str = "") -> None:
        self.name, self.title, self.about, self.content = name, title, about, content
        self.short = short or title

    def markup(self) -> Markup:
        """The section as HTML."""
        about = None if self.about is None else element("p", self.about, class_="about")
        heading = element("h2", self.title, id=f"{self.name}-heading")
        return element("section", heading, about, *self.content, id=self.name, aria_labelledby=f"{self.name}-heading")


def page(title: str, lead: Any, note: Any, sections: Sequence[Section | None], foot: str, data: Sequence[Markup] = ()) -> str:
    """A whole page.

    Its content security policy allows only the page's own script, and no requests.

    Args:
        title: the title of the page.
        lead: a summary below the title.
        note: an important note before all sections, or None.
        sections: the sections in order; None is left out.
        foot: the date and the version.
        data: blocks of JSON for the script.
    """
    script, style = _part("page.js"), _part("page.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'; base-uri 'none'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Markup(style)),
    )
    shown = [each for each in sections if each is not None]
    links = [element("li", element("a", each.short, href=f"#{each.name}")) for each in shown]
    body = element(
        "body",
        element("a", "Skip to the figures", href="#figures", class_="skip"),
        element(
            "header",
            element("h1", title),
            element("button", "Dark", id="theme", type="button", class_="no-print", hidden=True, title="Change the theme"),
            element("p", lead, class_="lead"),
        ),
        element(
            "main",
            element("nav", element("ul", links), aria_label="Sections"),
            None if note is None else element("div", note, class_="note", role="note"),
            [each.markup() for each in shown],
            id="figures",
        ),
        element("footer", foot),
        *data,
        element("script", Markup(script)),
    )
    return "<!doctype html>\n" + element("html", head, body, lang="en") + "\n"


def table(
    headings: Sequence[tuple[str, bool]],
    rows: Sequence[Any],
    *,
    caption: Any = None,
    name: str | None = None,
    kind: str | None = None,
) -> Markup:
    """A table from finished rows.

    Args:
        headings: ``(text, whether the column holds numbers)``.
        rows: elements ``tr``.
        caption: the text above the table, or None.
        name: its id.
        kind: its class.
    """
    heads = [element("th", words, scope="col", class_="n" if numbers else None) for words, numbers in headings]
    return element(
        "table",
        None if caption is None else element("caption", caption),
        element("thead", element("tr", heads)),
        element("tbody", rows),
        id=name,
        class_=kind,
    )


def facts(pairs: Sequence[tuple[str, Any]]) -> Markup:
    """Names and values."""
    return element("dl", [join(element("dt", name), element("dd", value)) for name, value in pairs], class_="facts")
