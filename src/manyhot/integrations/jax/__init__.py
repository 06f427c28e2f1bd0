"""The losses as JAX functions, under ``jit``, ``grad``, ``vmap``, ``pmap`` and ``shard_map``.

Names and arguments are those of the torch functions; the result is one value per row, as in Optax. Sums are float32 for
bfloat16 and float16 logits. The rules of exactness hold: entries that ``where`` leaves out have gradient 0 whatever their
score, and nothing is clipped or masked by a large number.
"""

from manyhot._doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__, __file__)
