"""Public names of ``manyhot.engines`` and where they live."""

from manyhot.engines.registry import available_engines as available_engines
