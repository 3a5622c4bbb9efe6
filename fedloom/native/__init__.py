"""Layers in C++, called through JAX's FFI: faster on CPUs than what XLA makes of the same mathematics.

`build` compiles the sources of this folder when a layer is first used, `conv` has the layer. Without a C++ compiler the
layers in JAX are used (fedloom/models/layers.py), which are the same but for rounding.
"""
