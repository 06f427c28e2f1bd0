"""The losses and metrics as Keras 3 classes, on every backend, saved and loaded with the model.

Keras casts ``y_true`` to its float type. A label that is negative (-1, -100) or NaN is unknown and excluded from losses
and metrics. Importing this package registers the classes, so that a saved model can be loaded.
"""

from manyhot._doors import open_door
from manyhot.integrations.keras import losses as losses
from manyhot.integrations.keras import metrics as metrics

__getattr__, __dir__, __all__ = open_door(__name__, __file__)
