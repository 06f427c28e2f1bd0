"""The commands for span models."""
