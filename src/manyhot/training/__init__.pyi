"""Public names of ``manyhot.training`` and where they live."""

from manyhot.training.rows.bundle import TrainedModel as TrainedModel
from manyhot.training.rows.bundle import load_model as load_model
from manyhot.training.rows.settings import TrainSettings as TrainSettings
from manyhot.training.rows.train import train as train
from manyhot.training.spans.bundle import FoundSpan as FoundSpan
from manyhot.training.spans.bundle import TrainedSpanModel as TrainedSpanModel
from manyhot.training.spans.bundle import load_span_model as load_span_model
from manyhot.training.spans.scoring import score_spans as score_spans
from manyhot.training.spans.settings import SpanSettings as SpanSettings
from manyhot.training.spans.train import train_spans as train_spans
