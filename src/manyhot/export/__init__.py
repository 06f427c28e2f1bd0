"""Models for other software: ONNX, a Hugging Face folder, plain weights, the rule folded into a head."""

from manyhot.export.folding import fold_link, fold_rule

__all__ = ["fold_link", "fold_rule"]
