"""Preparation of inputs for a model."""
