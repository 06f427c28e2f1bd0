"""All code that depends on internals of Triton or CUDA: compiled kernels and how they are launched."""
