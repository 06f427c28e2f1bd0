"""Tuning of thresholds: objectives, rows, one cut for all labels, one per label. The entry point is ``tune_rule``."""
