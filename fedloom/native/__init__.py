"""Layers in C++, called through JAX's FFI: faster on CPUs than what XLA makes of the same mathematics.

`build` compiles a source of this folder when its layer is first used; `conv` and `lstm` have the layers. Without a C++
compiler the layers in JAX are used (fedloom/models), which are the same but for rounding.
"""
