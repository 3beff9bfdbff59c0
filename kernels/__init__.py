"""The floor where clusters become kernel text: CUDA C++ and Numba, with the templates they are rendered into.

Shipped as `gradtape.kernels` and imported under that name only. It stands on `gradtape.ir`.
"""
