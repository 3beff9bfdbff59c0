"""The CUDA backend: device arrays, the kernels rendered for them, and NVIDIA's libraries. Floor: backends.

It imports no CuPy: whoever makes a `Cuda` gives it the array module, so that tests can give theirs."""
