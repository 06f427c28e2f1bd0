"""A running server: what it answers, what it refuses, how it stops and takes in new models."""

import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time

import pytest

from manyhot.cli.main import main
from manyhot.serve.served import bundle_digest
from manyhot.training.rows.settings import TrainSettings
from manyhot.training.rows.train import train
from serve.servers import PATIENCE, Server
from training.problems import text_examples

pytest.importorskip("fastapi", reason="the extra `serve` is not installed; make test-production installs it")


def test_predictions_are_those_of_the_model(texts_server, models):
    model, texts = models["texts"], text_examples(16, seed=5).texts
    status, told = texts_server.predict(texts, top=2, scores=True)
    assert status == 200
    logits, probs = model.logits(texts), model.probabilities(texts)
    for row, (found, labels) in enumerate(zip(told["predictions"], model.predict(texts).lists(), strict=True)):
        order = sorted(labels, key=lambda label: -float(logits[row, label]))
        assert found["labels"] == [model.label_names[label] for label in order]
        assert found["scores"] == pytest.approx([float(logits[row, label]) for label in order], abs=1e-4)
        assert found["probabilities"] == pytest.approx([float(probs[row, label]) for label in order], abs=1e-5)
        assert len(found["top"]) == 2
        assert found["top"][0]["score"] >= found["top"][1]["score"]


def test_rows_of_features_come_as_lists_or_by_name_and_may_miss_values(folders, models):
    server = Server(folders["features"])
    try:
        row = [0.5, None, -1.0, 2.0, 0.0, 1.0, 0.25, -0.5]
        status, told = server.predict([row])
        assert status == 200
        assert set(told["predictions"][0]["labels"]) <= set("abcd")
        wrong = {"status": 422, "error": "inputs[0] must have 8 numbers, one for each feature; got 3."}
        assert server.predict([row[:3]]) == (422, wrong)
        assert server.predict([[1e300] * 8])[0] == 422
        assert server.ask("POST", "/predict", '{"inputs": [[NaN, 0, 0, 0, 0, 0, 0, 0]]}')[0] == 422
        assert "have no names" in server.predict([{"a": 1.0}])[1]["error"]
        status, told = server.ask("POST", "/explain", {"inputs": [row], "steps": 8})
        assert told["explanations"][0]["method"] == "integrated gradients"
    finally:
        server.stop()


def test_images_come_as_channels_of_rows(folders):
    server = Server(folders["images"])
    try:
        bright = [[[0] * 8 for _ in range(8)] for _ in range(2)]
        bright[0][3][4] = 255
        small = [[[0] * 5 for _ in range(4)] for _ in range(2)]
        status, told = server.predict([bright, small], top=2)
        assert status == 200
        assert told["predictions"][0]["top"][0]["label"] == "left"
        assert "2 channels" in server.predict([bright[:1]])[1]["error"]
        assert server.predict([[[[256]], [[0]]]])[0] == 422
        assert server.ask("POST", "/explain", {"inputs": [bright], "top": 1})[0] == 200
    finally:
        server.stop()


def test_span_models_mark_spans(folders, models):
    server = Server(folders["spans"])
    try:
        text = "Ada met Tom there"
        _, told = server.predict([text, ""], scores=True)
        wanted = [{"type": s.type, "start": s.start, "end": s.end} for s in models["spans"].predict([text])[0]]
        assert wanted
        assert [{key: span[key] for key in ("type", "start", "end")} for span in told["predictions"][0]["spans"]] == wanted
        assert told["predictions"][1] == {"spans": []}
        status, told = server.ask("POST", "/explain", {"inputs": [text], "labels": ["PER"], "steps": 16})
        assert status == 200
        found = [span for span in told["explanations"][0]["spans"] if span["predicted"]]
        assert [
            {key: span[key] for key in ("type", "start", "end")} for span in sorted(found, key=lambda s: s["start"])
        ] == wanted
        for span in found:
            parts = span["base"] + sum(each["part"] for each in span["contributions"]) + span["rest"] + span["error"]
            assert parts == pytest.approx(span["score"], abs=1e-3)
        assert "must be types of the model" in server.ask("POST", "/explain", {"inputs": [text], "labels": ["LOC"]})[1]["error"]
    finally:
        server.stop()


def test_explanations_add_up(texts_server):
    status, told = texts_server.ask("POST", "/explain", {"inputs": ["salt and bread"], "labels": ["salt"], "most": 50})
    assert status == 200
    (label,) = told["explanations"][0]["labels"]
    total = label["base"] + sum(each["part"] for each in label["contributions"]) + label["rest"]
    assert total == pytest.approx(label["score"], abs=1e-4)
    assert texts_server.ask("POST", "/explain", {"inputs": ["a"], "labels": ["sallt"]})[1]["error"].startswith(
        "`labels` must be"
    )


REFUSED = {
    "broken": (b'{"inputs": ["a"', 422, "EOF while parsing"),
    "nothing": (b"", 422, "EOF while parsing"),
    "not an object": (b"[1, 2]", 422, "the body must be a JSON object like"),
    "deep": (b'{"inputs": ' + b"[" * 5000 + b"]" * 5000 + b"}", 422, "recursion limit exceeded"),
    "wrong type": (b'{"inputs": [1]}', 422, "inputs[0]: Input should be a valid string"),
    "no rows": (b'{"inputs": []}', 422, "inputs: List should have at least 1 item"),
    "unknown name": (
        b'{"inputs": ["a"], "topk": 1}',
        422,
        "topk: unknown field; the fields are inputs, top, probabilities, scores",
    ),
    "top too large": (b'{"inputs": ["a"], "top": 100000}', 422, "top: Input should be less than or equal to 1000"),
    "not UTF-8": (b'{"inputs": ["\xff"]}', 422, "the body: Invalid JSON"),
    "half a character": (b'{"inputs": ["\\ud800"]}', 422, "the body: Invalid JSON"),
    "long text": (
        json.dumps({"inputs": ["a" * 2001]}).encode(),
        413,
        "inputs[0] must have at most 2,000 characters; got 2,001",
    ),
    "many rows": (json.dumps({"inputs": ["a"] * 17}).encode(), 413, "at most 16 rows; got 17. Send them in parts"),
    "long body": (b" " * 20_001, 413, "the body must have at most 20,000 bytes; got 20001"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_told_why(texts_server, name):
    body, status, words = REFUSED[name]
    got, told = texts_server.ask("POST", "/predict", body)
    assert (got, told["status"]) == (status, status)
    assert words in told["error"]


def test_a_body_without_a_length_is_cut_off_at_the_limit(texts_server):
    connection = http.client.HTTPConnection("127.0.0.1", texts_server.port, timeout=PATIENCE)
    connection.request("POST", "/predict", iter([b" " * 4096] * 40), {}, encode_chunked=True)
    answer = connection.getresponse()
    assert answer.status == 413
    connection.close()


def test_other_addresses_and_methods_are_json_too(texts_server):
    assert texts_server.ask("GET", "/nowhere")[0] == 404
    assert texts_server.ask("GET", "/predict")[0] == 405
    assert texts_server.ask("GET", "/../../etc/passwd")[0] == 404
    assert texts_server.ask("GET", "/docs")[0] == 404


def raw(server, content):
    """What comes back for bytes that are no request, until the server closes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as client:
        client.sendall(content)
        parts = []
        while part := client.recv(4096):
            parts.append(part)
        return b"".join(parts)


def test_slow_senders_are_let_go(texts_server):
    assert raw(texts_server, b"POST /predict HTTP/1.1\r\nHos") == b""
    body = raw(texts_server, b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\nConnection: close\r\n\r\n{")
    assert b" 408 " in body
    assert b"within 3 seconds" in body


def test_what_is_not_http_is_answered_in_json(texts_server):
    assert b'"status":400' in raw(texts_server, b"\x16\x03\x01 hello\r\n\r\n")
    flood = (
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"X-%d: %s\r\n" % (n, b"y" * 100) for n in range(2000)) + b"\r\n"
    )
    with socket.create_connection(("127.0.0.1", texts_server.port), timeout=PATIENCE) as client:
        try:
            client.sendall(flood)
            assert b"400" in client.recv(4096)
        except ConnectionError:
            pass


def test_health_and_counts(texts_server):
    status, told = texts_server.ask("GET", "/health")
    assert (status, told["status"], told["kind"]) == (200, "ok", "texts")
    before = texts_server.ask("GET", "/metrics")[1]
    assert texts_server.predict(["salt", "oven"])[0] == 200
    after = texts_server.ask("GET", "/metrics")[1]

    def value(text, name):
        return next((float(line.split()[-1]) for line in text.splitlines() if line.startswith(name)), 0.0)

    for name, more in (('manyhot_requests_total{path="/predict",status="200"}', 1), ("manyhot_rows_total", 2)):
        assert value(after, name) == value(before, name) + more
    assert value(after, "manyhot_open") == 1
    for line in after.splitlines():
        assert line.startswith("#") or len(line.rsplit(" ", 1)) == 2


def test_the_description_names_every_question(texts_server):
    told = texts_server.ask("GET", "/openapi.json")[1]
    assert {"/predict", "/explain", "/health", "/metrics"} <= set(told["paths"])
    body = told["paths"]["/predict"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["properties"]["inputs"]["items"] == {"type": "string"}


def test_requests_that_come_together_are_computed_together(folders):
    server = Server(folders["texts"], "--batch-wait", 50)
    try:
        statuses = []
        threads = [threading.Thread(target=lambda: statuses.append(server.predict(["salt"])[0])) for _ in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        counts = dict(
            line.split() for line in server.ask("GET", "/metrics")[1].splitlines() if "batch" in line and "#" not in line
        )
        assert statuses == [200] * 24
        assert float(counts["manyhot_batch_rows_total"]) == 24
        assert float(counts["manyhot_batches_total"]) < 24
    finally:
        server.stop()


def test_too_much_waiting_is_refused_and_nothing_in_time_is_503(folders):
    server = Server(folders["texts"], "--timeout", 0.001, "--batch-wait", 0)
    try:
        status, told = server.predict(["salt " * 2000] * 200)
        assert status == 503
        assert "timed out after 0.001 seconds" in told["error"]
    finally:
        server.stop()


class Askers:
    """Clients that ask without end and keep all that they got; a connection is kept for a few requests."""

    def __init__(self, server, *, clients=4, fresh=True):
        self.server, self.fresh, self.stopped = server, fresh, threading.Event()
        self.answers, self.lost, self.refused = [], [], 0
        self.threads = [threading.Thread(target=self._ask) for _ in range(clients)]
        for thread in self.threads:
            thread.start()

    def _ask(self):
        while not self.stopped.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=PATIENCE)
            try:
                connection.connect()
            except OSError:
                # Nobody listens any more: the request was never sent.
                self.refused += 1
                time.sleep(0.01)
                continue
            try:
                for _ in range(1 if self.fresh else 10):
                    connection.request("POST", "/predict", b'{"inputs": ["salt bread"]}')
                    answer = connection.getresponse()
                    self.answers.append((answer.status, json.loads(answer.read())))
                    if answer.getheader("connection") == "close":
                        break
            except (OSError, http.client.HTTPException) as error:
                self.lost.append(repr(error))
            finally:
                connection.close()

    def end(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join()


@pytest.mark.parametrize("workers", [1, 2])
def test_new_models_are_taken_in_and_no_answer_is_lost(models, tmp_path, workers):
    models["texts"].save(tmp_path)
    others = [train(text_examples(seed=seed), TrainSettings(model="linear", epochs=2, threads=1)) for seed in (7, 8)]
    server = Server(tmp_path, "--reload-every", 0.1, "--workers", workers)
    askers = Askers(server, fresh=False)
    digests = [bundle_digest(tmp_path)]
    try:
        for turn in range(10):
            others[turn % 2].save(tmp_path)
            digests.append(bundle_digest(tmp_path))
            # Any worker may answer: the new model is there when many answers in a row are its own.
            server.wait_until(lambda: {server.ask("GET", "/health")[1]["model"] for _ in range(8)} == {digests[-1]})
    finally:
        askers.end()
        code, said = server.stop()
    assert code == 0
    assert askers.lost == []
    assert len(askers.answers) > 20
    assert {status for status, _ in askers.answers} == {200}
    assert {told["model"] for _, told in askers.answers} <= set(digests)
    assert said.count("loaded model") >= 10


def test_a_model_that_does_not_fit_is_not_taken_in(models, tmp_path):
    models["texts"].save(tmp_path)
    server = Server(tmp_path, "--reload-every", 0)
    before = server.ask("GET", "/health")[1]["model"]
    models["features"].save(tmp_path)
    server.process.send_signal(signal.SIGHUP)
    server.wait_until(lambda: "manyhot_reload_failures_total 1" in server.ask("GET", "/metrics")[1])
    assert server.ask("GET", "/health")[1]["model"] == before
    assert server.predict(["salt"])[0] == 200
    assert "it reads features" in server.stop()[1]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("fresh", [True, False])
def test_a_stop_answers_everything_that_was_sent(folders, number, fresh, workers):
    server = Server(folders["texts"], "--drain", 0.4, "--workers", workers)
    askers = Askers(server, clients=6, fresh=fresh)
    server.wait_until(lambda: len(askers.answers) > 10)
    code, said = server.stop(number)
    askers.end()
    assert code == 0, said
    assert askers.lost == []
    assert {status for status, _ in askers.answers} == {200}
    assert "stopped" in said


def test_workers_that_hear_of_a_stop_twice_still_answer(folders):
    """A terminal and a service manager signal the workers as well as their supervisor."""
    server = Server(folders["texts"], "--workers", 2)
    askers = Askers(server, clients=6)
    server.wait_until(lambda: len(askers.answers) > 10)
    for own in children_of(server):
        os.kill(own, signal.SIGINT)
    code, said = server.stop(signal.SIGINT)
    askers.end()
    assert code == 0, said
    assert askers.lost == []


def test_a_reload_that_is_asked_for_while_the_server_starts_does_not_end_it(folders):
    server = Server(folders["texts"], "--workers", 2, wait=False)
    server.process.send_signal(signal.SIGHUP)
    server.wait_until(lambda: server.ask("GET", "/health")[0] == 200)
    code, said = server.stop()
    assert code == 0, said
    assert "starting another" not in said


def test_a_request_that_comes_as_the_server_stops_is_answered(folders):
    """On a connection that was opened before and on one that had a request already."""
    server = Server(folders["texts"], "--drain", 0.1, "--grace", PATIENCE)
    body = b'{"inputs": ["salt"]}'
    request = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    with (
        socket.create_connection(("127.0.0.1", server.port)) as fresh,
        socket.create_connection(("127.0.0.1", server.port)) as used,
    ):
        used.sendall(request)
        assert b" 200 " in whole(used)
        server.process.send_signal(signal.SIGTERM)
        # The server has stopped listening when a new connection is refused.
        server.wait_until(lambda: refused(server))
        for client in (fresh, used):
            client.sendall(request)
            assert b" 200 " in whole(client)
    assert server.stop()[0] == 0


def whole(client):
    """An answer to its last byte: headers and body may come apart."""
    got = b""
    while not got.endswith(b"}"):
        part = client.recv(4096)
        assert part, got
        got += part
    return got


def refused(server):
    try:
        socket.create_connection(("127.0.0.1", server.port), timeout=1).close()
    except ConnectionRefusedError:
        return True
    return False


def test_answers_are_sent_at_once(texts_server):
    """Headers and body are two packets; with Nagle's algorithm the second would wait for 40 ms."""
    connection = http.client.HTTPConnection("127.0.0.1", texts_server.port, timeout=PATIENCE)
    taken = []
    for _ in range(30):
        started = time.perf_counter()
        connection.request("GET", "/health")
        connection.getresponse().read()
        taken.append(time.perf_counter() - started)
    connection.close()
    assert min(taken[5:]) < 0.02


def test_health_says_that_the_server_is_stopping(folders):
    server = Server(folders["texts"], "--drain", 30)
    server.process.send_signal(signal.SIGTERM)
    server.wait_until(lambda: server.ask("GET", "/health")[0] == 503)
    assert server.predict(["salt"])[0] == 200
    assert server.stop(signal.SIGINT)[0] == 0


def children_of(server):
    found = subprocess.run(["pgrep", "-P", str(server.process.pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in found.stdout.split()]


def test_several_workers_share_the_port_and_the_counts_and_outlive_one(folders):
    server = Server(folders["texts"], "--workers", 2)
    try:
        for _ in range(20):
            assert server.predict(["salt"])[0] == 200
        # A worker counts a request after its response has left; another one may be asked before that.
        counted = 'manyhot_requests_total{path="/predict",status="200"} 20\n'
        server.wait_until(lambda: counted in server.ask("GET", "/metrics")[1])
        first = children_of(server)
        assert len(first) == 2
        askers = Askers(server, clients=3)
        os.kill(first[0], signal.SIGTERM)
        server.wait_until(lambda: len(now := children_of(server)) == 2 and first[0] not in now)
        askers.end()
        assert askers.lost == []
        assert askers.refused == 0
    finally:
        code, said = server.stop()
    assert code == 0, said


def test_a_port_that_is_taken_is_one_line(texts_server, folders, capfd):
    assert main(["serve", str(folders["texts"]), "--port", str(texts_server.port)]) == 1
    assert f"cannot listen on 127.0.0.1:{texts_server.port}: Address already in use" in capfd.readouterr().err
