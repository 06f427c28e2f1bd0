"""Tuning of thresholds, one for all labels or one per label; see ``tune_rule``. A cut is a candidate threshold."""
