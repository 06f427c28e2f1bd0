"""Scores to predictions: decision rules, probabilities, calibration, tuning, and decoding of spans."""
