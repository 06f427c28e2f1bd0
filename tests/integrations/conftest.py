"""Four devices for JAX on one CPU; warnings of other people's packages are not ours to fix."""

import os
import warnings

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("WANDB_MODE", "offline")
warnings.filterwarnings("ignore", category=DeprecationWarning)
