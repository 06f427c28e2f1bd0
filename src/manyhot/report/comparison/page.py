"""The HTML page of a comparison, built only from its statistics."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from manyhot.report.comparison.charts import cost_figure, difference_figure, p_words, rank_shade
from manyhot.report.comparison.words import RULES, cell_class, fact_words, lead_words, mean_cost, note_words
from manyhot.report.parts.markup import Markup, element, join
from manyhot.report.parts.page import Section, facts, page, table
from manyhot.report.run.words import MINUS, setting_words

DIGITS = 3
MANY = 8
COSTS = (
    ("seconds", "seconds"),
    ("epoch_seconds", "seconds per epoch"),
    ("predict_seconds", "seconds to predict 1,000 rows"),
    ("parameters", "parameters"),
    ("outputs", "outputs"),
)
FACTS = ("num_labels", "imbalance", "cardinality")


def compare_page(report: Mapping[str, Any], *, title: str) -> str:
    """The HTML of a comparison's report.

    Args:
        report: ``plan``, ``statistics`` and ``failed``, from ``read_comparison``.
        title: the title of the page.
    """
    found = report["statistics"]
    sections = [
        _overview(found),
        _choose(found),
        _costs(found),
        _groups(found),
        _settings(report),
    ]
    made = f"Compared {report['plan'].get('created', '')}" if report["plan"].get("created") else "Compared"
    foot = f"{made} by manyhot {report['plan'].get('versions', {}).get('manyhot', '')}."
    return page(title, lead_words(report), element("p", note_words(report)), sections, foot)


def _panel(content: Any, **chosen: str) -> Markup:
    """The panel for the selection ``chosen``."""
    return element("div", content, data_panel=json.dumps(chosen))


def _select(words: str, name: str, options: Sequence[tuple[str, str]], first: str) -> Markup:
    listed = [element("option", text, value=value, selected=value == first) for value, text in options]
    return element("label", words, element("select", listed, data_chooses=name))


def _overview(found: Mapping[str, Any]) -> Section:
    tables = []
    for rule, tests in found["tests"].items():
        metrics = [metric for metric in found["metrics"] if tests.get(metric)]
        headings = [("method", False), *((metric, True) for metric in metrics)]
        for caption, cell in (
            ("Average rank over the groups", _rank_cell),
            ("Number of groups in which the method has the best mean", _best_cell),
        ):
            rows = [
                element(
                    "tr",
                    element("th", found["titles"][method], scope="row"),
                    [cell(tests[metric], method) for metric in metrics],
                )
                for method in found["methods"]
            ]
            ranked = table(headings, rows, kind="sortable", caption=f"{caption}, {RULES.get(rule, rule)}")
            tables.append(_panel(element("div", ranked, class_="scroll"), rule=rule))
    rules = [(rule, RULES.get(rule, rule)) for rule in found["tests"]]
    control = element("div", _select("Decision", "rule", rules, rules[-1][0] if rules else ""), class_="tools no-print")
    about = (
        "Rank 1 is best and has the strongest colour. Bold: better than every other method by more than the critical"
        " difference. Methods with equal means all count as best."
    )
    return Section("overview", "Overview", about, control, *tables)


def _rank_cell(test: Mapping[str, Any], method: str) -> Markup:
    rank = (test.get("average_ranks") or {}).get(method)
    if rank is None:
        return element("td", "-", class_="n", data_value="")
    ranks = test["average_ranks"]
    nemenyi = test.get("nemenyi")
    alone = nemenyi is not None and all(
        other - rank > nemenyi["critical_difference"] for name, other in ranks.items() if name != method
    )
    kind = f"n h{rank_shade(rank, len(ranks))}" + (" best" if alone else "")
    return element("td", f"{rank:.2f}", class_=kind, data_value=round(rank, 4))


def _best_cell(test: Mapping[str, Any], method: str) -> Markup:
    best = test["best_in"].get(method)
    return element("td", "-" if best is None else str(best), class_="n", data_value="" if best is None else best)


def _choose(found: Mapping[str, Any]) -> Section:
    metrics = list(found["metrics"])
    control = element(
        "div", _select("Metric", "metric", [(metric, metric) for metric in metrics], metrics[0]), class_="tools no-print"
    )
    panels = [
        _panel(_metric_panel(found, rule, metric), rule=rule, metric=metric) for rule in found["tests"] for metric in metrics
    ]
    about = "All results for one metric, with the decision chosen above."
    return Section("metrics", "Metric by metric", about, control, *panels, short="Metrics")


def _metric_panel(found: Mapping[str, Any], rule: str, metric: str) -> list[Any]:
    test = found["tests"][rule].get(metric)
    error = found["metrics"][metric]["error"]
    heading = element("h3", f"{metric}, {RULES.get(rule, rule)}; {'less' if error else 'more'} is better")
    if not test:
        return [heading, element("p", "There are too few values for this metric.", class_="soft")]
    return [
        heading,
        difference_figure(test, found["titles"], metric),
        element("h3", "Values"),
        element("div", _values(found, rule, metric, test), class_="scroll"),
        element("h3", "Ranks"),
        element("div", _rank_map(found, rule, metric), class_="scroll"),
        element("h3", f"{found['titles'][test['reference']]} against the others"),
        element("div", _against(found, rule, metric, test), class_="scroll"),
    ]


def _values(found: Mapping[str, Any], rule: str, metric: str, test: Mapping[str, Any]) -> Markup:
    rows = []
    for group in found["groups"]:
        values = found["values"][rule][metric].get(group, {})
        best = test["significant_best"].get(group, [])
        cells = [_value_cell(values.get(method), method, best) for method in found["methods"]]
        rows.append(element("tr", element("th", group, scope="row"), cells))
    headings = [("group", False), *((found["titles"][method], True) for method in found["methods"])]
    caption = (
        "Mean ± standard deviation over seeds. Bold: significantly better than every other method of the group. Underlined: not"
        " significantly different from the best, if there are several (Welch's test over seeds with Holm's correction)."
    )
    return table(headings, rows, caption=caption, kind="values sortable" + _wide(found))


def _wide(found: Mapping[str, Any]) -> str:
    """The class of tables with a column for each method, if there are many."""
    return " wide" if len(found["methods"]) > MANY else ""


def _value_cell(value: Mapping[str, Any] | None, method: str, best: Sequence[str]) -> Markup:
    if not value or value["mean"] is None:
        return element("td", "-", class_="n", data_value="")
    spread = element("small", f"±{value['std']:.{DIGITS}f}") if value.get("std") is not None and value["n"] > 1 else None
    return element(
        "td",
        element("span", f"{value['mean']:.{DIGITS}f}"),
        spread,
        class_=f"n {cell_class(method, best)}".strip(),
        data_value=f"{value['mean']:.6g}",
    )


def _rank_map(found: Mapping[str, Any], rule: str, metric: str) -> Markup:
    rows = []
    for group in found["groups"]:
        ranks = found["ranks"][rule][metric].get(group, {})
        number = max([1.0, *ranks.values()])
        cells = [
            element("td", f"{ranks[method]:g}", class_=f"n h{rank_shade(ranks[method], round(number))}")
            if method in ranks
            else element("td", "-", class_="n")
            for method in found["methods"]
        ]
        rows.append(element("tr", element("th", group, scope="row"), cells))
    headings = [("group", False), *((found["titles"][method], True) for method in found["methods"])]
    return table(
        headings, rows, caption="Rank within each group; 1 is best and has the strongest colour.", kind="heat" + _wide(found)
    )


def _against(found: Mapping[str, Any], rule: str, metric: str, test: Mapping[str, Any]) -> Markup:
    effects = found["effects"].get(rule, {}).get(metric) or {}
    rows = []
    for method in found["methods"]:
        if method not in test["plain_wins"]:
            continue
        told = (test.get("wilcoxon") or {}).get(method) or {}
        sure, plain = test["win_tie_loss"].get(method), test["plain_wins"][method]
        p = told.get("p_holm")
        cells = [
            element("td", _difference(told.get("median_difference")), class_="n"),
            element("td", p_words(told.get("p")), class_="n"),
            element("td", p_words(p), class_="n best" if p is not None and p < 0.05 else "n"),
            element("td", "-" if sure is None else " / ".join(map(str, sure)), class_="n"),
            element("td", " / ".join(map(str, plain)), class_="n"),
            [element("td", _effect(effects.get(method, {}).get(fact)), class_="n") for fact in FACTS],
        ]
        rows.append(element("tr", element("th", found["titles"][method], scope="row"), cells))
    headings = (
        ("other method", False),
        ("median difference", True),
        ("p", True),
        ("p, Holm", True),
        ("win / tie / loss", True),
        ("by means only", True),
        ("labels", True),
        ("imbalance", True),
        ("cardinality", True),
    )
    caption = (
        "A positive difference favours the reference (Wilcoxon's signed-rank test over groups). A win is significant over seeds"
        " (Welch); the column 'by means only' counts every difference of means. The last columns are Spearman's correlation,"
        " over groups, of the difference with properties of the data, bold if p < 0.05."
    )
    return table(headings, rows, caption=caption)


def _difference(value: float | None) -> str:
    return "-" if value is None else f"{value:+.4f}".replace("-", MINUS)


def _effect(found: Mapping[str, Any] | None) -> Any:
    if not found or found.get("rho") is None:
        return "-"
    text = f"{found['rho']:+.2f}".replace("-", MINUS)
    return element("strong", text) if (found.get("p") or 1.0) < 0.05 else text


def _costs(found: Mapping[str, Any]) -> Section:
    reference = found["reference"]
    rows = []
    for method in found["methods"]:
        means = [mean_cost(found["costs"], method, key) for key, _ in COSTS]
        peak = mean_cost(found["costs"], method, "peak_bytes")
        cells = [
            element(
                "td",
                "-" if mean is None else f"{mean:,.4g}" if mean < 1e4 else f"{mean:,.0f}",
                class_="n",
                data_value="" if mean is None else f"{mean:.6g}",
            )
            for mean in means
        ]
        told = "-" if peak is None else f"{peak / 2**20:,.3g}"
        cells.append(element("td", told, class_="n", data_value="" if peak is None else round(peak)))
        rows.append(element("tr", element("th", found["titles"][method], scope="row"), cells))
    headings = [("method", False), *((words, True) for _, words in COSTS), ("peak memory, MiB", True)]
    summed = element("div", table(headings, rows, kind="sortable", caption="Means over groups and seeds."), class_="scroll")
    chart = cost_figure(found["costs"], found["methods"], found["titles"], reference)
    return Section("cost", "Cost", None, chart, summed)


def _groups(found: Mapping[str, Any]) -> Section:
    parts = []
    for group in found["groups"]:
        known = found["facts"].get(group, {})
        tables = [
            _panel(element("div", _group_table(found, rule, group), class_="scroll"), rule=rule) for rule in found["tests"]
        ]
        parts.append(
            element("details", element("summary", group, " ", element("span", fact_words(known), class_="soft")), tables)
        )
    about = "Each group with all methods and metrics, with the decision chosen above."
    return Section("groups", "Data sets", about, parts)


def _group_table(found: Mapping[str, Any], rule: str, group: str) -> Markup:
    rows = []
    for method in found["methods"]:
        cells = []
        for metric in found["metrics"]:
            test = found["tests"][rule].get(metric) or {"significant_best": {}}
            value = found["values"][rule][metric].get(group, {}).get(method)
            cells.append(_value_cell(value, method, test["significant_best"].get(group, [])))
        rows.append(element("tr", element("th", found["titles"][method], scope="row"), cells))
    return table([("method", False), *((metric, True) for metric in found["metrics"])], rows, kind="values sortable")


def _settings(report: Mapping[str, Any]) -> Section:
    plan = report["plan"]
    pairs = [
        ("data", ", ".join(plan.get("data", {}))),
        ("models", ", ".join(map(str, plan.get("models", [])))),
        ("seeds", setting_words(plan.get("seeds"))),
        ("hardware", setting_words(plan.get("hardware") or "-")),
        *((name, setting_words(value)) for name, value in plan.get("settings", {}).items()),
        *((name, str(value)) for name, value in plan.get("versions", {}).items()),
    ]
    failed = report["failed"]
    told = None
    if failed:
        rows = [
            element("tr", element("th", each["key"], scope="row"), element("td", each["error"][:300])) for each in failed[:50]
        ]
        told = join(element("h3", f"{len(failed):,} failed cells"), table((("cell", False), ("reason", False)), rows))
    return Section("settings", "Settings and versions", None, facts(pairs), told)
