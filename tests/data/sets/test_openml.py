"""Sets by name: scikit-learn's client against a local server that speaks OpenML's protocol."""

import hashlib
import json
import threading
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from manyhot.data.files.problems import DataError
from manyhot.data.sets.openml import fetch_openml_examples

DENSE = """@RELATION songs
@ATTRIBUTE beat REAL
@ATTRIBUTE mood {calm,wild,odd}
@ATTRIBUTE happy {FALSE,TRUE}
@ATTRIBUTE sad {FALSE,TRUE}
@DATA
0.5,calm,TRUE,FALSE
?,odd,TRUE,TRUE
2,wild,FALSE,FALSE
"""
SPARSE = """@RELATION pages
@ATTRIBUTE word1 NUMERIC
@ATTRIBUTE word2 NUMERIC
@ATTRIBUTE news {0,1}
@ATTRIBUTE sport {0,1}
@DATA
{0 1.5,2 1}
{}
{1 2,3 1}
"""
CLASSES = DENSE.replace("{FALSE,TRUE}", "{a,b}").replace("TRUE", "a").replace("FALSE", "b")
SETS = {"songs": (1, DENSE, "ARFF"), "pages": (2, SPARSE, "Sparse_ARFF"), "classes": (3, CLASSES, "ARFF")}


def features_of(text):
    lines = [line.split(None, 2) for line in text.splitlines() if line.startswith("@ATTRIBUTE")]
    for place, (_, name, kind) in enumerate(lines):
        nominal = kind.startswith("{")
        told = {"index": str(place), "name": name, "data_type": "nominal" if nominal else "numeric"}
        told |= {"nominal_value": kind.strip("{}").split(",")} if nominal else {}
        yield told | {
            "is_target": "true" if place >= 2 else "false",
            "is_ignore": "false",
            "is_row_identifier": "false",
            "number_of_missing_values": "0",
        }


class OpenML(BaseHTTPRequestHandler):
    """The five answers that the client asks for."""

    def do_GET(self):
        self.server.asked.append(self.path)
        parts = self.path.strip("/").split("/")
        answer, status = self.answer(parts)
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer(self, parts):
        if "data_name" in parts:
            name = parts[parts.index("data_name") + 1]
            if name not in SETS:
                return {"error": {"code": "372", "message": "No results"}}, 412
            return {"data": {"dataset": [{"did": SETS[name][0], "name": name, "version": 1, "status": "active"}]}}, 200
        number = int(parts[-1].split(".")[0])
        name, (_, text, kind) = next((name, value) for name, value in SETS.items() if value[0] == number)
        if "download" in parts:
            return text.encode(), 200
        if "features" in parts:
            return {"data_features": {"feature": list(features_of(text))}}, 200
        if "qualities" in parts:
            return {"data_qualities": {"quality": [{"name": "NumberOfInstances", "value": "3.0"}]}}, 200
        description = {
            "id": str(number),
            "name": name,
            "version": "1",
            "format": kind,
            "status": "active",
            "description": "...",
        }
        description |= {"licence": "Public", "file_id": str(number), "md5_checksum": hashlib.md5(text.encode()).hexdigest()}
        description["url"] = f"http://127.0.0.1:{self.server.server_port}/data/v1/download/{number}"
        return {"data_set_description": description}, 200

    def log_message(self, *_):
        pass


def point_client(port, put=setattr):
    """Let scikit-learn's client ask the local server."""
    from sklearn.datasets import _openml

    for name in ("_OPENML_PREFIX", "_SEARCH_NAME", "_DATA_INFO", "_DATA_FEATURES", "_DATA_QUALITIES", "_DATA_FILE"):
        address = getattr(_openml, name, "")
        for host in ("https://www.openml.org/", "https://api.openml.org/", "https://openml.org/"):
            if address.startswith(host):
                put(_openml, name, address.replace(host, f"http://127.0.0.1:{port}/"))


@contextmanager
def running_server():
    """The server, as long as the block lasts."""
    running = ThreadingHTTPServer(("127.0.0.1", 0), OpenML)
    running.asked = []
    running.point_client = partial(point_client, running.server_port)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield running
    running.shutdown()
    running.server_close()
    thread.join()


@pytest.fixture
def server(monkeypatch):
    with running_server() as running:
        running.point_client(put=monkeypatch.setattr)
        yield running


def test_dense_sets_have_labels_features_and_their_names(server, tmp_path):
    examples = fetch_openml_examples("songs", folder=tmp_path)
    assert examples.label_names == ("happy", "sad")
    assert examples.labels.lists() == [[0], [0, 1], []]
    assert examples.feature_names == ("beat", "mood=calm", "mood=wild", "mood=odd")
    np.testing.assert_array_equal(examples.features, np.float32([[0.5, 1, 0, 0], [np.nan, 0, 0, 1], [2, 0, 1, 0]]))
    assert examples.source[0].chosen["licence"] == "Public"


def test_sparse_sets_stay_sparse(server, tmp_path):
    examples = fetch_openml_examples("pages", folder=tmp_path)
    assert examples.labels.lists() == [[0], [], [1]]
    assert examples.features.format == "csr"
    assert examples.features.toarray().tolist() == [[1.5, 0], [0, 0], [0, 2]]


def test_a_second_fetch_needs_no_network(server, tmp_path):
    fetch_openml_examples("songs", version=1, folder=tmp_path)
    asked = len(server.asked)
    assert asked >= 4
    again = fetch_openml_examples("songs", version=1, folder=tmp_path)
    assert len(server.asked) == asked
    assert len(again) == 3


def test_other_label_columns_can_be_named(server, tmp_path):
    examples = fetch_openml_examples("songs", labels=["sad"], folder=tmp_path)
    assert examples.label_names == ("sad",)


def test_an_unknown_name_is_a_clear_error(server, tmp_path):
    with pytest.raises(DataError, match=r"OpenML data set 'sons': .*No active dataset sons found.*Check name"):
        fetch_openml_examples("sons", folder=tmp_path)


def test_a_set_with_classes_is_not_multi_label(server, tmp_path):
    with pytest.raises(DataError, match=r"line 1, column 'happy': a label must be 0 or 1.*got 'a'"):
        fetch_openml_examples("classes", folder=tmp_path)


def test_offline_is_a_clear_error(server, tmp_path):
    server.shutdown()
    server.server_close()
    with pytest.raises(DataError, match=r"could not be downloaded .*Is there a network"):
        fetch_openml_examples("songs", folder=tmp_path, retries=1, delay=0.01)
