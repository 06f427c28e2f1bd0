"""Loss and gradient in JAX and Keras beside the binary cross-entropy of the same framework, on one CPU thread.

python -m benchmarks.integrations_speed > benchmarks/results/integrations-speed-DATE.md
"""

import os
import platform
import time
from datetime import date

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("KERAS_BACKEND", "jax")

import jax
import jax.numpy as jnp
import keras
import numpy as np
import optax

from manyhot.integrations import jax as ours
from manyhot.integrations import keras as ours_keras

SHAPES = ((256, 1_000), (128, 10_000), (16, 100_000))
REPEATS = 15


def seconds(loss, logits):
    """The lower quartile of repeated calls of a compiled loss and gradient."""
    step = jax.jit(jax.value_and_grad(loss))
    jax.block_until_ready(step(logits))
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        jax.block_until_ready(step(logits))
        times.append(time.perf_counter() - start)
    return sorted(times)[REPEATS // 4]


def rows():
    random = np.random.default_rng(0)
    bce = keras.losses.BinaryCrossentropy(from_logits=True)
    zlpr = ours_keras.ZLPRLoss()
    for size, labels in SHAPES:
        logits = jnp.asarray(random.normal(size=(size, labels)).astype("f"))
        truth = jnp.asarray((random.random((size, labels)) < 0.01).astype("f"))
        pairs = {
            "JAX": (
                lambda x, t=truth: ours.zlpr_loss(x, t).mean(),
                lambda x, t=truth: optax.sigmoid_binary_cross_entropy(x, t).mean(),
            ),
            "Keras (JAX)": (lambda x, t=truth: zlpr(t, x), lambda x, t=truth: bce(t, x)),
        }
        for name, (own, theirs) in pairs.items():
            mine, other = seconds(own, logits), seconds(theirs, logits)
            yield f"| {name} | {size} x {labels:,} | {1e3 * mine:.2f} | {1e3 * other:.2f} | {mine / other:.2f} |"


if __name__ == "__main__":
    print("# ZLPR beside binary cross-entropy in JAX and Keras\n")
    print(f"Loss and gradient, compiled, float32, one CPU thread of {platform.machine()}; milliseconds a step, lower quartile")
    print(f"of {REPEATS}. jax {jax.__version__}, keras {keras.__version__}, optax {optax.__version__}, {date.today()}.")
    print("Command: `python -m benchmarks.integrations_speed`. BCE is `optax.sigmoid_binary_cross_entropy` and")
    print("`keras.losses.BinaryCrossentropy(from_logits=True)`.\n")
    print("| framework | rows x labels | ZLPR, ms | BCE, ms | ratio |\n|---|---|---|---|---|")
    for row in rows():
        print(row, flush=True)
