"""Files of texts with spans: every format, its spellings, and what is wrong with a file said in full."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manyhot.data.files.problems import DataError
from manyhot.data.spans.examples import SpanExamples, TextSpan
from manyhot.data.spans.read import read_span_examples
from manyhot.data.spans.write import write_span_examples

ADA = [TextSpan("PER", 0, 12)]


def written(tmp_path, content, name="file"):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    "record",
    [
        {"text": "Ada Lovelace wrote", "spans": [{"start": 0, "end": 12, "type": "PER"}]},
        {"text": "Ada Lovelace wrote", "spans": [{"start": 0, "end": 12, "label": "PER", "token_start": 0, "token_end": 1}]},
        {"text": "Ada Lovelace wrote", "label": [[0, 12, "PER"]]},
        {"text": "Ada Lovelace wrote", "labels": [[0, 12, "PER"]]},
        {"text": "Ada Lovelace wrote", "entities": [[0, 12, "PER"]]},
        {"text": "Ada Lovelace wrote", "entities": [{"id": 1, "label": "PER", "start_offset": 0, "end_offset": 12}]},
        ["Ada Lovelace wrote", {"entities": [[0, 12, "PER"]]}],
        {"text": "Ada Lovelace wrote", "label": {"PER": {"Ada Lovelace": [[0, 11]]}}},
    ],
)
def test_the_spellings_of_common_tools_say_the_same(tmp_path, record):
    examples = read_span_examples(written(tmp_path, json.dumps(record) + "\n"))
    assert examples.texts == ["Ada Lovelace wrote"]
    assert examples.spans == [ADA]


def test_compressed_files_ids_tokens_and_answers_are_understood(tmp_path):
    rows = [
        {"id": 7, "text": "a b", "spans": [], "tokens": [{"start": 0, "end": 1}, {"start": 2, "end": 3}], "answer": "accept"},
        {"id": 8, "text": "c d", "spans": [], "answer": "reject"},
    ]
    path = written(tmp_path, gzip.compress("\n".join(map(json.dumps, rows)).encode()), "rows.jsonl.gz")
    examples = read_span_examples(path)
    assert (examples.ids, examples.tokens) == (["7"], [[(0, 1), (2, 3)]])
    assert examples.source[0].chosen == {"end": "exclusive", "rows_not_accepted": 1, "compression": "gz"}


def test_a_repeated_span_is_read_once_and_counted(tmp_path):
    path = written(tmp_path, json.dumps({"text": "Ada", "spans": [[0, 3, "PER"], [0, 3, "PER"]]}))
    examples = read_span_examples(path)
    assert examples.spans == [[TextSpan("PER", 0, 3)]]
    assert examples.source[0].chosen["repeated_spans"] == 1


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            {"text": "Ada", "spans": [[0, 4, "PER"]]},
            r"line 1, column 'spans\[0\]': must lie in the text, 0 <= start < end <= 3",
        ),
        ({"text": "Ada", "spans": [[1, 1, "PER"]]}, "For ends that are inclusive add 1"),
        ({"text": "Ada", "spans": [[-1, 2, "PER"]]}, "must lie in the text"),
        ({"text": "Ada", "spans": [[0.0, 2, "PER"]]}, "the start must be a whole number; got 0.0"),
        ({"text": "Ada", "spans": [[True, 2, "PER"]]}, "the start must be a whole number; got True"),
        ({"text": "Ada", "spans": [[0, 2, ""]]}, "the type must be a name"),
        ({"text": "Ada", "spans": [[0, 2]]}, r"must be \{\"start\": ..., \"end\": ..., \"type\": ...\} or"),
        ({"text": "Ada", "spans": [{"start": 0, "end": 2}]}, "must have a key 'type'"),
        ({"text": "Ada", "spans": {"PER": 1}}, "must be a list of spans"),
        ({"text": 3, "spans": []}, "column 'text': must be a string; got 3"),
        ({"texts": "Ada"}, "must have a key 'text'"),
        ({"text": "Ada"}, "must have a key 'spans' with a list of spans"),
        ({"text": "Ada", "label": {"PER": {"Bob": [[0, 2]]}}}, "both ends inclusive; the text at .0, 2. is 'Ada'"),
        ({"text": "Ada", "label": {"PER": {"Ada": [[0, 3]]}}}, "must lie in the text"),
        ({"text": "Ada", "label": {"PER": [[0, 2]]}}, "must be an object"),
        ({"text": "Ada", "spans": [], "tokens": [{"start": 0, "end": 2}, {"start": 1, "end": 3}]}, "must not overlap"),
    ],
)
def test_a_wrong_row_is_named_with_place_value_and_remedy(tmp_path, record, message):
    path = written(tmp_path, json.dumps(record) + "\n", "bad.jsonl")
    with pytest.raises(DataError, match=message) as caught:
        read_span_examples(path)
    assert str(caught.value).startswith(f"{path}, line 1")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ("\n \n", "only blank lines"),
        ('{"text": "a", "spans": []}\n{"text": \n', "line 2, column 10: the line must be a JSON object"),
        ('{"text": "a", "spans": []}\n[1, 2]\n', "One array over the whole file"),
        ('{"text": "\\ud800", "spans": []}', "half a surrogate pair"),
        (b'{"text": "\xe4", "spans": []}', "must be UTF-8; got the byte 0xe4"),
        ("just some words\n", "its format was not recognised"),
        (b"\x1f\x8b\x08\x00broken", "is truncated or damaged"),
        ("[" * 100_000, "could not be parsed|must be a JSON object"),
    ],
)
def test_hostile_files_are_refused_with_a_reason(tmp_path, content, message):
    with pytest.raises(DataError, match=message):
        read_span_examples(written(tmp_path, content))


def test_collected_problems_leave_their_rows_out(tmp_path):
    lines = [{"text": "Ada", "spans": [[0, 3, "PER"]]}, {"text": "Bob", "spans": [[0, 9, "PER"]]}]
    examples = read_span_examples(written(tmp_path, "\n".join(map(json.dumps, lines))), on_problem="collect")
    assert examples.texts == ["Ada"]
    assert examples.source[0].num_problems == 1
    assert examples.source[0].problems[0].line == 2


def test_texts_to_predict_need_no_spans(tmp_path):
    plain = read_span_examples(written(tmp_path, "Ada met Bob.\n\nBob left.\n", "a.txt"), need_spans=False)
    assert plain.texts == ["Ada met Bob.", "Bob left."]
    lines = read_span_examples(written(tmp_path, '{"text": "Ada"}\n', "b.jsonl"), need_spans=False)
    assert lines.texts == ["Ada"]
    with pytest.raises(DataError, match="plain text has none"):
        read_span_examples(tmp_path / "a.txt")


IOB2 = "Ada B-PER\nLovelace I-PER\nmet O\nBob B-PER\nSue B-PER\n"
IOB1 = "Ada I-PER\nLovelace I-PER\nmet O\nBob I-PER\nSue B-PER\n"
BIOES = "Ada B-PER\nLovelace E-PER\nmet O\nBob S-PER\nSue S-PER\n"
BILOU = "Ada B-PER\nLovelace L-PER\nmet O\nBob U-PER\nSue U-PER\n"


@pytest.mark.parametrize(("content", "scheme"), [(IOB2, "iob2"), (IOB1, "iob1"), (BIOES, "bioes"), (BILOU, "bioes")])
@pytest.mark.parametrize("between", [" ", "\t", "\r\n"])
def test_tagging_schemes_are_recognised_and_say_the_same(tmp_path, content, scheme, between):
    content = content.replace("\n", "\r\n") if between == "\r\n" else content.replace(" ", between)
    examples = read_span_examples(written(tmp_path, content))
    assert examples.texts == ["Ada Lovelace met Bob Sue"]
    assert examples.surfaces(0) == ["Ada Lovelace", "Bob", "Sue"]
    assert examples.tokens == [[(0, 3), (4, 12), (13, 16), (17, 20), (21, 24)]]
    assert examples.source[0].chosen["scheme"] == scheme


def test_two_columns_of_tags_are_spans_inside_spans(tmp_path):
    content = "1\tUni\tB-ORG\tO\n2\tLeipzig\tI-ORG\tB-LOC\n\n1\t#\tO\tO\n"
    examples = read_span_examples(written(tmp_path, "#\thttp://example.org\n" + content))
    assert examples.spans == [[TextSpan("ORG", 0, 11), TextSpan("LOC", 4, 11)], []]
    assert examples.texts[1] == "#"
    assert examples.num_nested() == 1


def test_chunk_tags_before_the_entity_tags_are_no_second_column(tmp_path):
    content = "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n"
    examples = read_span_examples(written(tmp_path, content))
    assert examples.spans == [[TextSpan("ORG", 0, 2)]]
    assert examples.source[0].chosen["tag_columns"] == 1
    both = read_span_examples(written(tmp_path, content.replace("-DOCSTART- -X- O O\n\n", "")), tag_columns=2)
    assert {span.type for span in both.spans[0]} == {"ORG", "NP", "VP"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a B-X\nb O\nc I-X\n", "line 3: an entity must begin with B- .IOB2.*the file does both"),
        ("a B-X\nb O\n\nc\n", "line 4: must have a token and 1 column of tags"),
        ("a B-X\nb O\nc O\nd O\ne O\nf X-Y\n", "line 6.*must be O, or B-.*got 'X-Y'|the last column must hold tags"),
        ("a B-X\nb O\nc B-X\nd S-Y\n", "an entity must end with E- or L-; 'X' is left open"),
        ("a S-X\nb E-X\n", "line 2: an entity must begin with B-"),
        ("a B-X\nb S-X\nc B-X\n", "is left open"),
    ],
)
def test_tags_that_fit_no_scheme_are_named_with_their_line(tmp_path, content, message):
    with pytest.raises(DataError, match=message):
        read_span_examples(written(tmp_path, content), format="conll")


def test_a_lenient_scheme_lets_both_letters_begin_an_entity(tmp_path):
    examples = read_span_examples(written(tmp_path, "a B-X\nb O\nc I-X\nd I-Y\n"), scheme="iob1")
    assert examples.surfaces(0) == ["a", "c", "d"]


@pytest.fixture
def brat(tmp_path):
    folder = tmp_path / "brat"
    folder.mkdir()
    (folder / "one.txt").write_text("Ada Lovelace\nwrote to Uni Leipzig.\n")
    marks = "T1\tPER 0 12\tAda Lovelace\nT2\tORG 22 33\tUni Leipzig\nR1\tknows Arg1:T1 Arg2:T2\n#1\tNote T1\tgood\n"
    marks += "T3\tPART 0 3;19 21\tAda to\n"
    (folder / "one.ann").write_text(marks)
    (folder / "two.txt").write_text("Nothing.")
    (folder / "two.ann").write_text("")
    return folder


def test_brat_folders_keep_what_is_in_pieces_apart_and_count_it(brat):
    examples = read_span_examples(brat)
    assert examples.ids == ["one", "two"]
    assert examples.surfaces(0) == ["Ada Lovelace", "Uni Leipzig"]
    assert [span.type for span in examples.fragmented[0]] == ["PART"]
    assert examples.num_spans == 3
    assert examples.source[0].chosen == {"texts": 2, "relations": 1, "notes": 1, "spans_in_pieces": 1}
    assert read_span_examples(brat / "one.ann").texts == examples.texts[:1]
    with pytest.raises(ValueError, match="must have no discontinuous spans; got 1"):
        write_span_examples(examples, brat / "out.jsonl")


@pytest.mark.parametrize(
    ("marks", "message"),
    [
        ("T1\tPER 0 99\tAda", "line 1: must lie in the text"),
        ("T1\tPER 0 3\tBob", "must give the position of 'Bob'; the text there is 'Ada'"),
        ("T1 PER 0 3 Ada", "must be an annotation such as"),
        ("T1\tPER 3 0\tAda", "must lie in the text"),
        ("X1\tPER 0 3\tAda", "must be an annotation such as"),
    ],
)
def test_wrong_marks_are_named_under_their_own_file(brat, marks, message):
    (brat / "one.ann").write_text(marks)
    with pytest.raises(DataError, match=message) as caught:
        read_span_examples(brat)
    assert caught.value.problem.file.endswith("one.ann")


def test_a_text_without_marks_and_marks_without_a_text_are_errors(brat):
    (brat / "two.ann").unlink()
    with pytest.raises(DataError, match="must have annotations beside it"):
        read_span_examples(brat)
    assert len(read_span_examples(brat, need_spans=False)) == 2
    (brat / "three.ann").write_text("")
    with pytest.raises(DataError, match="must have its text beside it"):
        read_span_examples(brat)


def test_several_files_are_one_set(tmp_path):
    one = written(tmp_path, IOB2, "one.conll")
    two = written(tmp_path, json.dumps({"text": "Ada", "spans": [[0, 3, "LOC"]]}), "two.jsonl")
    examples = read_span_examples([one, two])
    assert len(examples) == 2
    assert examples.type_names == ("LOC", "PER")
    assert examples.tokens is None
    with pytest.raises(ValueError, match="must name at least one file"):
        read_span_examples([])
    with pytest.raises(DataError, match="there is no such file"):
        read_span_examples(tmp_path / "none.jsonl")


@st.composite
def marked_texts(draw):
    texts = draw(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20), min_size=1, max_size=4))
    spans = []
    for text in texts:
        row = set()
        for _ in range(draw(st.integers(0, 3))):
            start = draw(st.integers(0, len(text) - 1))
            row.add(TextSpan(draw(st.sampled_from(["PER", "地", "a b"])), start, draw(st.integers(start + 1, len(text)))))
        spans.append(sorted(row, key=lambda span: (span.start, -span.end, span.type)))
    return SpanExamples(texts, spans)


@given(marked_texts())
def test_what_is_written_is_read_back(tmp_path_factory, examples):
    path = tmp_path_factory.mktemp("written") / "rows.jsonl"
    write_span_examples(examples, path)
    back = read_span_examples(path)
    assert (back.texts, back.spans) == (examples.texts, examples.spans)
    assert back.fingerprint() == examples.fingerprint()


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_with_a_reason(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("any") / "file"
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
    for format in (None, "conll", "span-jsonl", "cluener"):
        try:
            found = len(read_span_examples(path, format=format, on_problem="collect"))
        except DataError as error:
            found = str(error).count(str(path))
        assert found > 0


@pytest.mark.parametrize(
    ("file", "texts", "spans", "nested"),
    [
        ("cluener2020/train.json.gz", 10748, 23972, 2),
        ("cluener2020/dev.json.gz", 1343, 3072, 0),
        ("germeval2014/germ.dev.iob2.gz", 2200, 2886, 212),
        ("germeval2014/germ.test.iob2.gz", 5100, 6693, 513),
        ("wnut17/wnut17train.conll.gz", 3394, 1975, 0),
        ("wnut17/emerging.test.annotated.gz", 1287, 1079, 0),
    ],
)
def test_real_sets_have_the_published_counts(data_folder, file, texts, spans, nested):
    examples = read_span_examples(data_folder / file)
    assert (len(examples), examples.num_spans, examples.num_nested()) == (texts, spans, nested)
