"""Public names of ``manyhot.integrations.jax`` and where they live."""

from manyhot.integrations.jax.labels import PaddedLabels as PaddedLabels
from manyhot.integrations.jax.losses import asymmetric_loss as asymmetric_loss
from manyhot.integrations.jax.losses import bce_loss as bce_loss
from manyhot.integrations.jax.losses import focal_loss as focal_loss
from manyhot.integrations.jax.losses import pairwise_loss as pairwise_loss
from manyhot.integrations.jax.losses import tlpr_loss as tlpr_loss
from manyhot.integrations.jax.losses import zlpr_loss as zlpr_loss
from manyhot.integrations.jax.sides import two_sided_logsumexp as two_sided_logsumexp
