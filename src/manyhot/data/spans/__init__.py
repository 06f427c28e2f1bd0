"""Texts with marked spans: formats, reading, alignment."""
