"""Create the example report in ``digit_scenes/``: python docs/examples/digit_scenes.py"""

from pathlib import Path

import torch

from manyhot import SparseLabels, TrainSettings
from manyhot.data.examples import Examples
from manyhot.data.sets.digit_scenes import IMBALANCED, DigitScenes, digit_scenes
from manyhot.report.files import write_report
from manyhot.report.run.judged import Judged, Origin
from manyhot.report.run.measure import measure_run
from manyhot.training.rows.train import train

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SETTINGS = TrainSettings(
    model="conv", hidden=48, dropout=0.1, learning_rate=0.005, batch_size=16, epochs=12, calibrate="platt", threads=1
)


def examples(scenes: DigitScenes) -> Examples:
    """Scenes with the names of their digits."""
    return Examples(SparseLabels.from_dense(scenes.labels.to(torch.bool)), DIGITS, images=scenes.images)


def main() -> None:
    """Train a model, evaluate it on test scenes, and write the report."""
    seen = examples(digit_scenes(1500, frequencies=IMBALANCED, seed=0))
    test = examples(digit_scenes(1500, part="test", frequencies=IMBALANCED, seed=1))
    folder = Path(__file__).parent / "digit_scenes"
    run = Path(__file__).parents[2] / "runs" / "example-digit-scenes"
    model = train(seen, SETTINGS, run=run, resume=True)
    judged = Judged.by_model(model, model.logits(test), test.labels, None)
    report = measure_run(model, judged, Origin("test", test), run=run)
    write_report(report, folder, title="Digit scenes, the 9 five hundred times rarer than the 0")


if __name__ == "__main__":
    main()
