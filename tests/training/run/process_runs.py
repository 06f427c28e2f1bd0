"""The same function in several real processes, joined as torchrun joins them."""

import multiprocessing
import os
import socket

import torch
import torch.distributed as dist

from manyhot.training.rows.train import train
from manyhot.training.run.processes import several_processes


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def _joined(rank, count, port, function, arguments):
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    with several_processes():
        function(rank, *arguments)


def in_processes(function, *arguments, count=2):
    """Run ``function(rank, *arguments)`` in each of ``count`` processes; their exit codes."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["training.run.process_runs", "manyhot.evaluation"])
    port = free_port()
    started = [context.Process(target=_joined, args=(rank, count, port, function, arguments)) for rank in range(count)]
    for process in started:
        process.start()
    for process in started:
        process.join(120)
    return [process.exitcode for process in started]


def train_and_save(rank, folder, examples, settings, options):
    """Train, and save this process's model beside those of the others."""
    train(examples, settings, **options).save(folder / f"rank{rank}")


def tell_error(rank, folder, examples, settings):
    """Train what cannot be trained so, and write down what was said."""
    try:
        train(examples, settings)
    except ValueError as error:
        (folder / f"rank{rank}.txt").write_text(str(error))
    # A process that leaves at once could take the store away from one that is still joining.
    dist.barrier()


def train_until_epoch(rank, run, examples, settings, epoch):
    """Train in a run folder; leave without a word at an epoch."""

    def leave(event):
        if event.kind == "epoch" and event.epoch == epoch:
            os._exit(7)

    train(examples, settings, run=run, resume=True, progress=leave)


def die_early(rank, folder, examples, settings):
    """The second process ends after an epoch; the first one writes down how that looks to it."""

    def leave(event):
        if rank == 1 and event.kind == "epoch" and event.epoch == 2:
            os._exit(9)

    try:
        train(examples, settings, progress=leave)
    except ValueError as error:
        (folder / "told.txt").write_text(str(error))
        os._exit(1)


def train_spans_and_save(rank, folder, examples, settings):
    """A span model trained together in one run folder; each process saves what it has."""
    from manyhot import train_spans

    train_spans(examples, settings, run=folder / "run").save(folder / f"rank{rank}")


def train_spans_to_end(rank, run, examples, settings, _epoch):
    """A span model trained in a run folder, from where the run is."""
    from manyhot import train_spans

    train_spans(examples, settings, run=run, resume=True)


def killed_in_processes(function, *arguments, count=2, victim=0, after=1.0):
    """The same with one process killed ``after`` seconds; the others end by themselves, or are killed as torchrun does.

    Those that still wait for the killed one to join would wait for minutes.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["training.run.process_runs", "manyhot.evaluation"])
    port = free_port()
    started = [context.Process(target=_joined, args=(rank, count, port, function, arguments)) for rank in range(count)]
    for process in started:
        process.start()
    started[victim].join(after)
    started[victim].kill()
    for process in started:
        process.join(5)
        process.kill()
        process.join()
    return [process.exitcode for process in started]
