"""The native CPU engine: compiled C and its Python side."""
