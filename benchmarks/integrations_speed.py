"""Loss and gradient in JAX and Keras beside the binary cross-entropy of the same framework, and the memory they need.

python -m benchmarks.integrations_speed > benchmarks/results/integrations-cpu-DATE.md

Keras takes its backend once a process, so every framework is measured by a process of its own, on one CPU thread.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from datetime import date

SHAPES = ((256, 1_000), (128, 10_000), (16, 100_000))
REPEATS = 40
FRAMEWORKS = ("JAX", "Keras on torch", "Keras on jax", "Keras on tensorflow")
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


def make_rows(size, labels):
    import numpy as np

    random = np.random.default_rng(0)
    return random.normal(size=(size, labels)).astype("f"), (random.random((size, labels)) < 0.01).astype("f")


def losses_of(framework):
    """``(ZLPR, BCE)``, each a function of labels and logits."""
    if framework == "JAX":
        import optax

        from manyhot.integrations.jax import zlpr_loss

        return lambda t, x: zlpr_loss(x, t).mean(), lambda t, x: optax.sigmoid_binary_cross_entropy(x, t).mean()
    import keras

    from manyhot.integrations.keras import ZLPRLoss

    return ZLPRLoss(), keras.losses.BinaryCrossentropy(from_logits=True)


def step_of(framework, loss, logits, labels):
    """``(a call of loss and gradient, bytes that the compiled call needs beside its arguments and results or None)``."""
    if framework.endswith("torch"):
        import torch

        x, t = torch.tensor(logits, requires_grad=True), torch.tensor(labels)

        def by_torch():
            x.grad = None
            loss(t, x).backward()

        return by_torch, None
    if framework.endswith("tensorflow"):
        import tensorflow as tf

        x, t = tf.constant(logits), tf.constant(labels)

        @tf.function(jit_compile=True)
        def both(t, x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                value = loss(t, x)
            return value, tape.gradient(value, x)

        return lambda: both(t, x)[1].numpy(), None
    import jax

    x, t = jax.numpy.asarray(logits), jax.numpy.asarray(labels)
    step = jax.jit(jax.value_and_grad(lambda x, t: loss(t, x))).lower(x, t).compile()
    return lambda: jax.block_until_ready(step(x, t)), step.memory_analysis().temp_size_in_bytes


def measure(framework):
    """Milliseconds of both losses on every shape, taken in turns, and what memory they need."""
    zlpr, bce = losses_of(framework)
    found = []
    for size, labels in SHAPES:
        logits, truth = make_rows(size, labels)
        steps = [step_of(framework, loss, logits, truth) for loss in (zlpr, bce)]
        times = ([], [])
        for turn in range(REPEATS + 3):
            for (step, _), own in zip(steps, times, strict=True):
                start = time.process_time()
                step()
                if turn >= 3:
                    own.append(time.process_time() - start)
        medians = [1e3 * sorted(own)[len(own) // 2] for own in times]
        found.append({"shape": (size, labels), "times": medians, "temporary": [extra for _, extra in steps]})
    return found


def peak(framework, which):
    """Bytes by which one step raises the peak of the process, in sizes of the logits."""
    loss = losses_of(framework)[which]
    small, large = make_rows(4, 100), make_rows(512, 100_000)
    step_of(framework, loss, *small)[0]()
    step, _ = step_of(framework, loss, *large)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    step()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / large[0].nbytes


def asked(framework, *flags):
    """What a process of its own finds, None where the framework is not installed."""
    backend = framework.split()[-1].lower()
    environment = {**os.environ, **ONE_THREAD, "KERAS_BACKEND": backend}
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.integrations_speed", "--framework", framework, *flags]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    print(f"{framework}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
    return None


def versions():
    from importlib.metadata import PackageNotFoundError, version

    told = []
    for name in ("jax", "optax", "keras", "torch", "tensorflow-cpu"):
        try:
            told.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(told)


def page():
    print("# ZLPR beside binary cross-entropy in JAX and Keras\n")
    print(f"Loss and gradient of float32 rows, 1 % positive, on one CPU thread ({platform.machine()}); processor time in")
    print(f"milliseconds a step, the median of {REPEATS}, the two losses in turns. {versions()}, {date.today()}.")
    print("Command: `python -m benchmarks.integrations_speed`. BCE is `optax.sigmoid_binary_cross_entropy` and")
    print("`keras.losses.BinaryCrossentropy(from_logits=True)`. JAX and TensorFlow are compiled, torch is not.\n")
    print("| framework | rows x labels | ZLPR, ms | BCE, ms | ratio |\n|---|---|---|---|---|")
    extra = []
    for framework in FRAMEWORKS:
        for row in asked(framework) or ():
            (size, labels), (own, other), temporary = row["shape"], row["times"], row["temporary"]
            print(f"| {framework} | {size} x {labels:,} | {own:.2f} | {other:.2f} | {own / other:.2f} |", flush=True)
            if temporary[0] is not None:
                extra.append((framework, size, labels, *(part / (4 * size * labels) for part in temporary)))
    print("\n## Memory\n")
    print(
        "What one step adds to the peak of the process, for 512 x 100,000 logits, in sizes of the logits (205 MB). The gradient"
    )
    print("is one of them.\n\n| framework | ZLPR | BCE |\n|---|---|---|")
    for framework in FRAMEWORKS:
        both = [asked(framework, "--peak", str(which)) for which in (0, 1)]
        if None not in both:
            print(f"| {framework} | {both[0]:.2f} | {both[1]:.2f} |", flush=True)
    print("\nWhat XLA plans beside arguments and results, in sizes of the logits:\n")
    print("| framework | rows x labels | ZLPR | BCE |\n|---|---|---|---|")
    for framework, size, labels, own, other in extra:
        print(f"| {framework} | {size} x {labels:,} | {own:.2f} | {other:.2f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--framework", choices=FRAMEWORKS)
    parser.add_argument("--peak", type=int, choices=(0, 1), help="measure the memory of ZLPR (0) or BCE (1) instead")
    given = parser.parse_args()
    if given.framework is None:
        page()
    else:
        print(json.dumps(measure(given.framework) if given.peak is None else peak(given.framework, given.peak)))
