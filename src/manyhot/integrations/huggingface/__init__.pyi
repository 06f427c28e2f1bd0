"""Public names of ``manyhot.integrations.huggingface`` and where they live."""

from manyhot.integrations.huggingface.bundle import from_manyhot as from_manyhot
from manyhot.integrations.huggingface.bundle import to_manyhot as to_manyhot
from manyhot.integrations.huggingface.collate import MultiLabelCollator as MultiLabelCollator
from manyhot.integrations.huggingface.fold import fold_link_into as fold_link_into
from manyhot.integrations.huggingface.fold import fold_rule_into as fold_rule_into
from manyhot.integrations.huggingface.fold import pipeline_decisions as pipeline_decisions
from manyhot.integrations.huggingface.fold import save_folded as save_folded
from manyhot.integrations.huggingface.fold import score_texts as score_texts
from manyhot.integrations.huggingface.loss import TrainerLoss as TrainerLoss
from manyhot.integrations.huggingface.metrics import TrainerMetrics as TrainerMetrics
from manyhot.integrations.huggingface.spans import GlobalPointerConfig as GlobalPointerConfig
from manyhot.integrations.huggingface.spans import GlobalPointerForTokenClassification as GlobalPointerForTokenClassification
from manyhot.integrations.huggingface.spans import SpanCollator as SpanCollator
from manyhot.integrations.huggingface.spans import TrainerSpanMetrics as TrainerSpanMetrics
from manyhot.integrations.huggingface.trainer import TrainerChecks as TrainerChecks
from manyhot.integrations.huggingface.trainer import trainer_parts as trainer_parts
