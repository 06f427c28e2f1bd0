"""The losses as JAX functions; they work under ``jit``, ``grad``, ``vmap``, ``pmap`` and ``shard_map``.

Names and arguments are those of the torch functions; the result is one value per row, as in Optax. Sums are float32 for
bfloat16 and float16 logits. Entries that ``where`` excludes have gradient 0, whatever their score. Nothing is clipped or masked
with a large constant.
"""

from manyhot._doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__, __file__)
