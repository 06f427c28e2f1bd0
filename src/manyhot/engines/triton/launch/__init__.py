"""Everything that knows Triton or CUDA from inside: compiled kernels and how they are launched."""
