"""The Triton engine for CUDA devices."""
