"""Input files: opening, decompression, size limits, and reports of problems."""
