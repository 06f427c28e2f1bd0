"""How thresholds are tuned: what is counted, the rows, one cut for all labels, one for each. ``tune_rule`` is the door."""
