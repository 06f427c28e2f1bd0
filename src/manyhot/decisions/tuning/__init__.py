"""How thresholds are tuned: objectives, rows, one cut for all labels, one for each. The entry point is ``tune_rule``."""
