"""Public names of ``manyhot.integrations.keras`` and where they live."""

from manyhot.integrations.keras.losses import AsymmetricLoss as AsymmetricLoss
from manyhot.integrations.keras.losses import PairwiseLoss as PairwiseLoss
from manyhot.integrations.keras.losses import ZLPRLoss as ZLPRLoss
from manyhot.integrations.keras.metrics import F1Score as F1Score
