"""Text never becomes markup."""

import json
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from manyhot.report.parts.markup import Markup, data_block, element, join, name_of
from manyhot.report.run.markdown import plain


class Seen(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text, self.attributes = [], "", []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data


def parsed(markup):
    seen = Seen()
    seen.feed(markup)
    seen.close()
    return seen


HOSTILE = st.text(max_size=60) | st.sampled_from(
    ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "]]>", "&lt;b&gt;", "\x00\ud800"]
)


@given(HOSTILE, HOSTILE)
def test_whatever_the_text_there_is_one_element_with_one_attribute(text, title):
    seen = parsed(element("p", text, title=title))
    assert seen.tags == ["p"]
    assert [name for name, _ in seen.attributes] == ["title"]
    if not any(ord(character) < 32 or 0x7E < ord(character) < 0xA0 or ord(character) > 0xD7FF for character in text):
        assert seen.text == text


@given(HOSTILE)
def test_data_blocks_cannot_be_ended_from_within_and_read_back(text):
    block = data_block("x", {"name": text})
    assert block.count("<") == 2
    inner = block.removeprefix('<script type="application/json" id="x">').removesuffix("</script>")
    assert json.loads(inner) == {"name": text}


@given(HOSTILE)
def test_every_page_can_be_encoded(text):
    name_of(text, 10).encode()
    element("p", text).encode()


def test_markup_goes_in_as_it_is_and_none_is_left_out():
    assert join("a<", None, element("b", 1), ["x", Markup("&amp;")]) == "a&lt;<b>1</b>x&amp;"
    assert element("input", type="range", hidden=True, id=None) == '<input type="range" hidden>'


@given(HOSTILE)
def test_markdown_cells_stay_in_their_row(text):
    cell = plain(text)
    assert "\n" not in cell
    assert "\r" not in cell
    assert "<" not in cell.replace("\\<", "")
    assert "|" not in cell.replace("\\|", "")
    cell.encode()
