"""Triton kernels over rows read as packed 64-bit words."""
