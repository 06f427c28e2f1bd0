"""Inputs as a model reads them."""
