"""Counts: shared by workers, in the text form of Prometheus."""

import tempfile

from manyhot.serve.counters import Counters


def lines(text):
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))


def test_workers_add_up_and_a_new_one_goes_on_where_the_old_one_ended():
    with tempfile.TemporaryFile() as file:
        file.truncate(Counters.size(2))
        one, two = (Counters(2, own, file) for own in (0, 1))
        one.request("/predict", 200, 0.003)
        two.request("/predict", 200, 0.3)
        two.request("/predict", 418, 20.0)
        one.set("open", 5)
        two.set("open", 2)
        again = Counters(2, 0, file)
        found = lines(again.text())
    assert found['manyhot_requests_total{path="/predict",status="200"}'] == "2"
    assert found['manyhot_requests_total{path="/predict",status="other"}'] == "1"
    assert found['manyhot_request_seconds_bucket{path="/predict",le="0.005"}'] == "1"
    assert found['manyhot_request_seconds_bucket{path="/predict",le="0.5"}'] == "2"
    assert found['manyhot_request_seconds_bucket{path="/predict",le="+Inf"}'] == "3"
    assert found['manyhot_request_seconds_count{path="/predict"}'] == "3"
    assert float(found['manyhot_request_seconds_sum{path="/predict"}']) == 20.303
    # A worker that starts has no open requests, whatever the one before it left.
    assert found["manyhot_open"] == "2"


def test_an_unknown_path_is_counted_as_other():
    counters = Counters()
    counters.request("/x", 404, 0.1)
    assert lines(counters.text())['manyhot_requests_total{path="other",status="404"}'] == "1"
