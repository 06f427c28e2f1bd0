"""Losses side by side: the same body, splits, budget and early stopping for all, many seeds, and what the numbers prove."""
