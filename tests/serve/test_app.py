"""The application in this process: no request opens a file, faults become JSON, answers carry their headers."""

import asyncio
import json
import sys

import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed; make test-production installs it")

from manyhot.serve.app import Service, make_app
from manyhot.serve.counters import Counters
from manyhot.serve.guard import POLICY
from manyhot.serve.refusals import Refusal
from manyhot.serve.served import ServedRows
from manyhot.serve.settings import ServeSettings
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train
from serve.conftest import BOTH
from training.problems import title_examples

QUESTIONS = [
    ("POST", "/predict", {"inputs": ["salt and bread"], "top": 3}),
    ("POST", "/predict", {"inputs": ["../../etc/passwd", "file:///etc/passwd", "\x00"]}),
    ("POST", "/predict", {"inputs": [1]}),
    ("POST", "/explain", {"inputs": ["salt and bread"]}),
    ("GET", "/", None),
    ("GET", "/page.js", None),
    ("GET", "/about", None),
    ("GET", "/health", None),
    ("GET", "/metrics", None),
    ("GET", "/openapi.json", None),
    ("GET", "/../../../etc/passwd", None),
    ("GET", "/%2e%2e/%2e%2e/etc/passwd", None),
    ("PUT", "/model.json", {"a": 1}),
]
seen = None
FILES = (
    "open",
    "os.open",
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.listdir",
    "os.scandir",
    "shutil.",
    "subprocess.",
    "os.exec",
)


def _watch(event, arguments):
    if seen is not None and event.startswith(FILES):
        seen.append((event, str(arguments)[:100]))


sys.addaudithook(_watch)


async def ask(app, method, path, body):
    """One request through the whole application."""
    content = b"" if body is None else json.dumps(body).encode()
    sent, given = [], False

    async def receive():
        nonlocal given
        if given:
            await asyncio.sleep(10)
        given = True
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"content-length", str(len(content)).encode())],
        "http_version": "1.1",
        "scheme": "http",
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
        "root_path": "",
    }
    await app(scope, receive, send)
    return sent[0]["status"], dict(sent[0]["headers"]), b"".join(message.get("body", b"") for message in sent[1:])


def served(folder, work, **settings):
    """Run ``work(service, guard)`` while the service computes."""

    async def whole():
        service = Service(folder, ServeSettings(**settings), Counters())
        _, guard = make_app(service)
        service.start()
        try:
            return await work(service, guard)
        finally:
            await service.batcher.stop()

    return asyncio.run(whole())


@pytest.mark.parametrize("kind", ["texts", "spans"])
def test_no_request_opens_or_writes_a_file(folders, kind):
    global seen

    async def work(_, guard):
        global seen
        # The first round imports what is imported late.
        for round in range(2):
            seen = [] if round else None
            for question in QUESTIONS:
                status, _, _ = await ask(guard, *question)
                assert status in (200, 404, 405, 422)
        found, seen = seen, None
        return found

    try:
        assert served(folders[kind], work) == []
    finally:
        seen = None


def test_the_best_spans_are_listed_whatever_the_threshold_is(folders, models):
    first, second = sorted(models["spans"].predict([BOTH])[0], key=lambda each: -each.score)

    async def work(_, guard):
        body = {"inputs": [BOTH], "top": 5, "scores": True}
        return json.loads((await ask(guard, "POST", "/predict", body))[2])["predictions"][0]

    found = served(folders["strict spans"], work)
    assert [(each["start"], each["end"]) for each in found["spans"]] == [(first.start, first.end)]
    assert [(each["start"], each["predicted"]) for each in found["top"]] == [(first.start, True), (second.start, False)]
    assert found["top"][0]["score"] == pytest.approx(first.score, abs=1e-5)


def test_answers_carry_headers_that_keep_other_pages_out(folders):
    async def work(_, guard):
        for question in QUESTIONS:
            _, headers, _ = await ask(guard, *question)
            assert headers[b"content-security-policy"].decode() == POLICY
            assert headers[b"x-content-type-options"] == b"nosniff"
            assert b"access-control-allow-origin" not in headers
            assert b"connection" not in headers
        guard.stopping = True
        _, headers, _ = await ask(guard, *QUESTIONS[0])
        assert headers[b"connection"] == b"close"

    served(folders["texts"], work)


def test_a_fault_of_the_server_is_json_without_its_inside(folders, caplog):
    async def work(service, guard):
        service.served.model.body = None
        status, _, body = await ask(guard, *QUESTIONS[0])
        assert status == 500
        assert json.loads(body) == {"status": 500, "error": "internal server error; see the log of the server."}

    served(folders["texts"], work)


def test_more_open_requests_than_allowed_are_refused(folders):
    async def work(_, guard):
        guard.open = 5
        status, headers, body = await ask(guard, *QUESTIONS[0])
        assert status == 429
        assert headers[b"retry-after"] == b"1"
        assert b"5 requests are in progress already" in body

    served(folders["texts"], work, max_connections=5)


@pytest.mark.parametrize("body", ["wide", "tree"])
def test_models_of_very_many_labels_are_served_and_say_whether_they_are_explained(tmp_path, body):
    model = train(title_examples(), TrainSettings(model=body, epochs=3, threads=1))
    model.save(tmp_path)
    text = title_examples(3, seed=9).texts[0]
    wanted = [model.label_names[label] for label in model.predict([text]).lists()[0]]

    async def work(_, guard):
        _, _, told = await ask(guard, "POST", "/predict", {"inputs": [text], "top": 5})
        found = json.loads(told)["predictions"][0]
        assert sorted(found["labels"]) == sorted(wanted)
        assert len(found["top"]) == 5
        _, _, about = await ask(guard, "GET", "/about", None)
        status, _, told = await ask(guard, "POST", "/explain", {"inputs": [text]})
        assert (json.loads(about)["explains"], status) == {"wide": ("exactly", 200), "tree": (None, 422)}[body]
        assert body == "wide" or "Train another one, such as linear or bag" in json.loads(told)["error"]

    served(tmp_path, work)


def test_a_request_is_answered_by_one_model_from_first_row_to_last(folders, models, tmp_path):
    async def work(service, guard):
        asked = asyncio.ensure_future(ask(guard, "POST", "/predict", {"inputs": ["salt"] * 100}))
        await asyncio.sleep(0)
        before = service.served
        models["texts"].rule, kept = type(before.model.rule)(threshold=100.0), models["texts"].rule
        try:
            models["texts"].save(folders["texts"])
            assert await service.reload()
            assert not await service.reload()
        finally:
            models["texts"].rule = kept
        assert service.served is not before
        _, _, body = await asked
        assert json.loads(body)["model"] in (before.digest, service.served.digest)
        assert len({str(each) for each in json.loads(body)["predictions"]}) == 1
        _, _, body = await ask(guard, "POST", "/predict", {"inputs": ["salt"]})
        assert json.loads(body)["predictions"][0]["labels"] == []

    try:
        served(folders["texts"], work)
    finally:
        models["texts"].save(folders["texts"])


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"a": "1"}, r"inputs\[0\]: the value of 'a' must be a number of at most 3.4e\+38, or null"),
        ({"a": True}, "the value of 'a' must be a number"),
        ({"h": 10**400}, "the value of 'h' must be a number"),
        ({"a": 1.0, "z": None}, "must name features of the model; got 'z'"),
    ],
)
def test_cells_by_name_are_checked_to_the_first_mistake(models, row, words):
    served = ServedRows(models["features"], "digest")
    served.columns = {name: place for place, name in enumerate("abcdefgh")}
    assert served.check([{"a": 1, "b": None, "c": 0.5}], ServeSettings())[0][0] == 1
    with pytest.raises(Refusal, match=words):
        served.check([row], ServeSettings())
