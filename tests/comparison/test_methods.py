"""Names of rows, and their trials."""

import pytest

from manyhot.comparison.methods import POWERSET, STRATEGIES, parse_method, parse_methods
from manyhot.losses.catalog import LOSSES

COMPARED = [name for name in LOSSES if name != "softmax"] + [POWERSET]


def test_every_loss_of_the_catalog_can_be_compared_but_the_one_for_single_labels():
    for name in COMPARED:
        assert parse_method(name).title
    with pytest.raises(ValueError, match="one label per row"):
        parse_method("softmax")


def test_the_words_of_the_literature_are_understood():
    assert {word: parse_method(word).loss for word in STRATEGIES} == {"br": "bce", "lr": "pairwise", "lp": "powerset"}
    assert [parse_method(word).family for word in ("br", "lr", "lp")] == ["binary relevance", "label ranking", "label powerset"]


@pytest.mark.parametrize("name", [*COMPARED, "zlpr+smoothing+rdrop", "zlpr+rdrop=1", "bce+mixup"])
@pytest.mark.parametrize("count", [1, 3, 6])
def test_every_method_gets_the_same_number_of_trials(name, count):
    trials = parse_method(name).trials(count, (0.001, 0.1))
    assert len(trials) == count
    assert len({tuple(trial.items()) for trial in trials}) == count
    assert all(0.001 <= trial["learning_rate"] <= 0.1 for trial in trials)


def test_a_knob_shares_the_trials_with_the_learning_rate():
    trials = parse_method("focal").trials(6, (0.001, 0.1))
    assert [trial["gamma"] for trial in trials] == [2.0, 2.0, 2.0, 1.0, 1.0, 1.0]


def test_a_value_that_is_given_is_not_tuned():
    assert all("smoothing" not in trial for trial in parse_method("zlpr+smoothing=0.1").trials(4, (0.01, 0.1)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("zlp", "unknown loss 'zlp'. Did you mean 'zlpr'?"),
        ("zlpr+smooth", "unknown option 'smooth'.*Did you mean 'smoothing'?"),
        ("dice1+pos_weight=3", "'dice1' does not support 'pos_weight'"),
        ("lsep+rdrop", "does not support"),
        ("bce+threshold", "does not support"),
        ("powerset+smoothing", "does not support"),
        ("zlpr+pos_weight", "must give a weight"),
        ("bce+pos_weight=auto", "is only for zlpr"),
        ("zlpr+smoothing=lots", "must be a number; got 'lots'"),
        ("zlpr+pos_weight=-1", "> 0"),
        ("lsep+min_labels", "does not support"),
        ("zlpr+min_labels=0", "must be a whole number >= 1"),
    ],
)
def test_bad_names_are_clear_errors(text, words):
    with pytest.raises(ValueError, match=words.replace("?", r"\?").replace("+", r"\+")):
        parse_method(text)


def test_lists_may_have_commas_and_repeat():
    assert [method.name for method in parse_methods(["zlpr,bce", "zlpr"])] == ["zlpr", "bce"]


def test_titles_say_what_was_done():
    assert parse_method("zlpr+smoothing+rdrop").title == "ZLPR, smoothing, R-Drop"
    assert parse_method("tlpr").title == "ZLPR, learned threshold"
    assert parse_method("zlpr+pos_weight=auto").title == "ZLPR, automatic weight"
    assert parse_method("zlpr+min_labels").title == "ZLPR, at least 1"


def test_soft_labels_change_the_link():
    assert (parse_method("zlpr").link, parse_method("zlpr+smoothing").link, parse_method("lsep").link) == ("hard", "soft", None)
