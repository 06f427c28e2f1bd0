"""Metrics of predicted spans."""
