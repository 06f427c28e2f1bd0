"""Curation of data with a model: labels that look wrong or missing, and rows to label next."""

from manyhot._doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__, __file__)
