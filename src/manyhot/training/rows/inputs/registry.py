"""The kinds of inputs: each is fitted on the training rows, saved with the model, and prepares every later row the same way."""

from __future__ import annotations

from manyhot.training.rows.inputs.features import FeatureInputs
from manyhot.training.rows.inputs.images import ImageInputs
from manyhot.training.rows.inputs.texts import TextInputs
from manyhot.training.rows.inputs.tokens import TokenInputs

Inputs = TextInputs | TokenInputs | FeatureInputs | ImageInputs
INPUTS: dict[str, type[Inputs]] = {each.kind: each for each in (TextInputs, TokenInputs, FeatureInputs, ImageInputs)}
