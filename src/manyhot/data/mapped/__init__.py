"""Rows in memory-mapped files, for data that is larger than memory."""
