"""Triton kernels over rows of scores."""
