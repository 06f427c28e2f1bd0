"""Comparison of losses: the same body, splits, budget and early stopping for all, several seeds, and statistical tests."""
