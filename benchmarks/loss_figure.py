"""Draw the time of a loss against the number of labels, from the figures of `python -m benchmarks.gpu_engine`.

python -m benchmarks.loss_figure RESULTS.json FIGURE.svg
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

LINES = {
    "dense": ("manyhot ZLPR", "#0072b2", "o", 2.4),
    "BCE compiled": ("BCE, compiled", "#56b4e9", "^", 1.4),
    "BCE eager": ("BCE, eager", "#56b4e9", "v", 1.4),
    "recipe compiled": ("public ZLPR recipe, compiled", "#d55e00", "^", 1.4),
    "recipe eager": ("public ZLPR recipe, eager", "#d55e00", "v", 1.4),
}


def draw(results: dict, path: Path, dtype: str) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "manyhot"
    matplotlib.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    cases = [case for case in results["cases"] if case["type"] == dtype and "time" in case]
    figure, axes = pyplot.subplots(figsize=(7.2, 4.2), layout="constrained")
    labels = [case["labels"] for case in cases]
    for name, (title, colour, marker, width) in LINES.items():
        elements = [case["rows"] * case["labels"] for case in cases]
        picoseconds = [case["time"][name] / count * 1e9 for case, count in zip(cases, elements, strict=True)]
        dashes = "--" if name.endswith("compiled") else "-"
        axes.plot(labels, picoseconds, dashes, color=colour, marker=marker, markersize=5, linewidth=width, label=title)
    floor = [case["floor"]["dense"] / (case["rows"] * case["labels"]) * 1e9 for case in cases]
    axes.plot(labels, floor, ":", color="#555555", linewidth=1.4, label="bytes that must be moved")
    axes.set(xscale="log", yscale="log", xlabel="labels", ylabel="picoseconds a score, forward and backward")
    axes.set_title(f"{results['device']}, {dtype}, torch {results['torch']}", fontsize=10)
    axes.grid(alpha=0.25, which="major")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_ylim(top=600)
    axes.legend(frameon=False, fontsize=9, loc="upper right", ncols=2)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("figure", type=Path)
    parser.add_argument("--type", default="bfloat16", choices=("bfloat16", "float32"))
    settings = parser.parse_args()
    draw(json.loads(settings.results.read_text()), settings.figure, settings.type)


if __name__ == "__main__":
    main()
