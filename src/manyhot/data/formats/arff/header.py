"""The declarations at the head of an ARFF file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from manyhot.data.files.label_files import unescaped
from manyhot.data.files.problems import ProblemLog, shown

# Possessive quantifiers keep the time linear in the length of a line.
_QUOTED = r"""'(?:[^'\\]++|\\.)*+'|"(?:[^"\\]++|\\.)*+\""""
_NAME = re.compile(rf"{_QUOTED}|[^\s{{]++")
_VALUE = re.compile(rf"\s*+({_QUOTED}|[^,]*+)\s*+(,|$)")
_TRUTH = {"0": False, "false": False, "no": False, "n": False, "1": True, "true": True, "yes": True, "y": True}
_MEKA = re.compile(r"-C\s+(-?\d+)")


@dataclass(frozen=True, slots=True)
class Attribute:
    """A column: ``type`` is number, nominal, string or date; ``values`` are the nominal ones, in order."""

    name: str
    type: str
    line: int
    values: tuple[str, ...] = ()

    @property
    def zero_one(self) -> bool:
        """Whether it is nominal with the values 0 and 1, 0 first, and so can be read as a number."""
        return self.values == ("0", "1")

    @property
    def truth(self) -> list[bool] | None:
        """For a label: whether each value is positive, or None if the values are not those of a label."""
        meanings = [_TRUTH.get(value.lower()) for value in self.values]
        return None if None in meanings else [bool(meaning) for meaning in meanings]


def read_header(lines: Iterator[tuple[int, str]], problems: ProblemLog) -> tuple[str, list[Attribute]]:
    """The relation's name and the attributes; ``lines`` is left at the first line after ``@data``."""
    relation = ""
    attributes: dict[str, Attribute] = {}
    for line, text in lines:
        text = text.strip()
        keyword = text.split(None, 1)[0].lower() if text else ""
        if not text or text.startswith("%"):
            continue
        if keyword == "@relation":
            relation = text[len("@relation") :].strip()
        elif keyword == "@attribute":
            attribute = _attribute(text, line, problems)
            if attribute.name in attributes:
                earlier = attributes[attribute.name].line
                raise problems.fatal(
                    f"attribute names must differ; this one is already in line {earlier}. Rename it.",
                    line=line,
                    column=attribute.name,
                )
            attributes[attribute.name] = attribute
        elif keyword == "@data":
            if not attributes:
                raise problems.fatal("attributes must be declared before @data; there are none.", line=line)
            return relation, list(attributes.values())
        else:
            raise problems.fatal(
                f"before @data a line must begin with @relation, @attribute or %; got {shown(text)}.", line=line
            )
    raise problems.fatal("must have a line @data; there is none. Is the file complete, and is it ARFF?")


def split_values(text: str) -> list[str] | None:
    r"""Values separated by commas, with quotation marks and escapes resolved; None if quotes do not close.

    Example:
        >>> split_values(r"1, 'it\'s', ?")
        ['1', "it's", '?']
    """
    if "'" not in text and '"' not in text and "\\" not in text:
        return [value.strip() for value in text.split(",")]
    values, place = [], 0
    while True:
        match = _VALUE.match(text, place)
        if match is None:
            return None
        value = match.group(1).rstrip()
        quoted = value[:1] in ("'", '"')
        if quoted and (len(value) < 2 or value[-1] != value[0]):
            return None
        values.append(unescaped(value[1:-1] if quoted else value))
        place = match.end()
        if match.group(2) == "":
            return values


def meka_labels(relation: str, attributes: list[Attribute]) -> list[str] | None:
    """The labels as MEKA marks them: ``-C n`` in the relation's name makes the first n attributes labels, or the last if n < 0.

    None if there is no such number, or if a filter has moved the attributes.
    """
    match = _MEKA.search(relation)
    if match is None or "weka.filters" in relation:
        return None
    count = int(match.group(1)) if len(match.group(1)) < 10 else 0
    if not 0 < abs(count) < len(attributes):
        return None
    chosen = attributes[:count] if count > 0 else attributes[count:]
    return [attribute.name for attribute in chosen]


def _attribute(text: str, line: int, problems: ProblemLog) -> Attribute:
    rest = text[len("@attribute") :].lstrip()
    match = _NAME.match(rest)
    name, declared = (match[0], rest[match.end() :].strip()) if match else ("", "")
    if not declared or (declared[0] == "{" and declared[-1] != "}"):
        raise problems.fatal(f"an attribute must read '@attribute name type'; got {shown(text)}.", line=line)
    name = unescaped(name[1:-1] if name[:1] in ("'", '"') and name[-1:] == name[:1] and len(name) > 1 else name)
    if declared.startswith("{"):
        values = split_values(declared[1:-1])
        if values is None or len(set(values)) < len(values):
            wrong = "a quotation mark does not close" if values is None else "one occurs twice"
            raise problems.fatal(
                f"nominal values must differ, and their quotation marks must close; {wrong}.", line=line, column=name
            )
        return Attribute(name, "nominal", line, tuple(values))
    kind = declared.split(None, 1)[0].lower()
    types = {"numeric": "number", "real": "number", "integer": "number", "string": "string", "date": "date"}
    if kind not in types:
        raise problems.fatal(
            f"the type must be numeric, real, integer, string, date or {{values}}; got {shown(declared)}.",
            line=line,
            column=name,
        )
    return Attribute(name, types[kind], line)
