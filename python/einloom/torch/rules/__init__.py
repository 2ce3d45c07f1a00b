"""Definitions of PyTorch's operations as terms, one module per kind."""

from . import contractions, creation, elementwise, indexing, norms, reductions, views  # noqa: F401
