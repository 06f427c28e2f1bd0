"""How good predictions, rankings and probabilities are: functions, names and running accumulators."""
