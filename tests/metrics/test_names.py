"""The grammar of names."""

import pytest

from manyhot.metrics.catalog import METRICS
from manyhot.metrics.names import parse_metric


@pytest.mark.parametrize("name", [name for name in METRICS if "@" not in name])
def test_a_name_of_the_catalog_means_itself(name):
    parsed = parse_metric(name)
    assert (parsed.text, parsed.kind, parsed.k) == (name, name, 0)


@pytest.mark.parametrize("kind", [name for name in METRICS if "@" in name])
@pytest.mark.parametrize("k", [1, 5, 100])
def test_a_name_at_k_carries_its_number(kind, k):
    parsed = parse_metric(kind.replace("@k", f"@{k}"))
    assert (parsed.kind, parsed.k) == (kind, k)


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("subacc", "SubACC"),
        ("Micro-F1", "micro-F1"),
        ("microF1", "micro-F1"),
        ("hamming-eror", "hamming-error"),
        ("p@5", "P@5"),
        ("NDCG@10", "nDCG@10"),
        ("nDGC@10", "nDCG@10"),
        ("P@k", "P@5"),
        ("P@0", "P@5"),
        ("avg-prec", "AvgPrec"),
        ("RankingLoss", "RankLoss"),
    ],
)
def test_a_typo_is_told_the_nearest_name(typo, meant):
    with pytest.raises(ValueError, match=f"got '{typo}'. Did you mean '{meant}'?"):
        parse_metric(typo)


def test_a_word_near_to_nothing_is_told_all_names():
    with pytest.raises(ValueError, match=r"There are SubACC, MLC-F1, .*macro-Brier\."):
        parse_metric("zzz")
    with pytest.raises(TypeError, match="must be a str; got int"):
        parse_metric(5)


def test_every_entry_says_what_people_must_know():
    for name, info in METRICS.items():
        assert info.name == name
        assert info.summary
        assert info.direction in ("up", "down")
        assert info.needs in ("decisions", "scores", "probabilities", "all scores")
        assert not (info.lists and info.needs != "scores")
        assert (info.direction == "down") == (name.endswith(("error", "Loss", "ECE", "Brier")))
