"""One system for very many labels on prepared tf-idf rows: ``PYTHON benchmarks/extreme_peers.py SYSTEM FOLDER OUT``.

Runs under the interpreter of an environment that has the system; needs NumPy and SciPy beside it. ``FOLDER`` holds
``train.npz``, ``train_labels.npz`` and ``test.npz`` (CSR, written by ``extreme_cpu``). ``OUT.npz`` gets the best five labels of
each test row, ``OUT.json`` times in wall and CPU seconds, and the size of the model. Settings are those that each system's own
documentation uses.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from scipy import sparse

THREADS = int(os.environ.get("EXTREME_THREADS", "2"))
TOP = 5
Report = dict[str, Any]


def clock() -> tuple[float, float]:
    """Wall seconds, and CPU seconds of this process and its children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return time.monotonic(), sum(each.ru_utime + each.ru_stime for each in used)


def since(begun: tuple[float, float]) -> list[float]:
    return [round(after - before, 2) for after, before in zip(clock(), begun, strict=True)]


def largest_memory() -> int:
    """Bytes this process held at most, as Linux counts them; ``getrusage`` would count those of its parent too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def folder_size(path: str) -> int:
    return sum(each.stat().st_size for each in Path(path).rglob("*") if each.is_file())


def write_svmlight(rows: Any, labels: Any, path: str) -> None:
    """The format of the extreme classification repository."""
    with open(path, "w") as file:
        file.write(f"{rows.shape[0]} {rows.shape[1]} {labels.shape[1]}\n")
        for row in range(rows.shape[0]):
            own = slice(rows.indptr[row], rows.indptr[row + 1])
            pairs = zip(rows.indices[own].tolist(), rows.data[own].tolist(), strict=True)
            names = labels.indices[labels.indptr[row] : labels.indptr[row + 1]]
            file.write(",".join(map(str, names)) + "".join(f" {column}:{value:.6g}" for column, value in pairs) + "\n")


def omikuji(rows: Any, labels: Any, test: Any, *, bonsai: bool) -> Report:
    """omikuji with its defaults (Parabel: three trees, two means), or with the settings of its README for Bonsai."""
    import omikuji as package

    settings = package.Model.default_hyper_param()
    if bonsai:
        settings.cluster_k, settings.cluster_balanced, settings.max_depth = 100, False, 3
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/train.txt"
        write_svmlight(rows, labels, file)
        begun = clock()
        model = package.Model.train_on_data(file, settings, n_threads=THREADS)
        trained, begun = since(begun), clock()
        model.save(f"{folder}/model")
        size, begun = folder_size(f"{folder}/model"), clock()
    top = np.full((test.shape[0], TOP), -1)
    for row in range(test.shape[0]):
        own = slice(test.indptr[row], test.indptr[row + 1])
        pairs = list(zip(test.indices[own].tolist(), test.data[own].tolist(), strict=True))
        found = model.predict(pairs, beam_size=10, top_k=TOP)
        top[row, : len(found)] = [label for label, _ in found]
    return {"top": top, "train": trained, "predict": since(begun), "size": size, "version": version("omikuji")}


def pecos(rows: Any, labels: Any, test: Any) -> Report:
    """XR-Linear: PIFA label embeddings, hierarchical k-means, defaults, beam 10."""
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    begun = clock()
    embedded = LabelEmbeddingFactory.create(labels, rows, method="pifa")
    chain = Indexer.gen(embedded, indexer_type="hierarchicalkmeans", threads=THREADS)
    model = XLinearModel.train(rows, labels, C=chain, threads=THREADS)
    trained, begun = since(begun), clock()
    found = model.predict(test, beam_size=10, only_topk=TOP, threads=THREADS)
    predicted = since(begun)
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder)
        size = folder_size(folder)
    return {"top": best_of(found), "train": trained, "predict": predicted, "size": size, "version": version("libpecos")}


def napkinxc(rows: Any, labels: Any, test: Any) -> Report:
    """A probabilistic label tree with the package's defaults."""
    from napkinxc.models import PLT

    lists = [labels.indices[labels.indptr[row] : labels.indptr[row + 1]].tolist() for row in range(rows.shape[0])]
    with tempfile.TemporaryDirectory() as folder:
        model = PLT(folder, threads=THREADS)
        begun = clock()
        model.fit(rows, lists)
        trained, begun = since(begun), clock()
        found = model.predict(test, top_k=TOP)
        predicted, size = since(begun), folder_size(folder)
    top = np.full((test.shape[0], TOP), -1)
    for row, own in enumerate(found):
        top[row, : len(own)] = own
    return {"top": top, "train": trained, "predict": predicted, "size": size, "version": version("napkinxc")}


def libmultilabel(rows: Any, labels: Any, test: Any) -> Report:
    """LibMultiLabel's linear tree with its defaults, beam 10."""
    import psutil

    psutil.cpu_count = lambda **_: THREADS  # it starts a thread for every core of the machine
    if find_spec("sparsekmeans") is None:
        sys.modules["sparsekmeans"] = plain_kmeans()
    from libmultilabel import linear

    begun = clock()
    model = linear.train_tree(labels, rows, options=f"-s 1 -B 1 -m {THREADS}")
    trained, begun = since(begun), clock()
    found = []
    for first in range(0, test.shape[0], 256):
        scores = np.asarray(model.predict_values(test[first : first + 256], beam_width=10))
        part = np.argpartition(-scores, TOP, axis=1)[:, :TOP]
        order = np.argsort(-np.take_along_axis(scores, part, axis=1), axis=1)
        found.append(np.take_along_axis(part, order, axis=1))
    weights = model.flat_model.weights
    size = weights.data.nbytes + weights.indices.nbytes + weights.indptr.nbytes if sparse.issparse(weights) else weights.nbytes
    report = {"top": np.concatenate(found), "train": trained, "predict": since(begun), "size": int(size)}
    return {**report, "version": version("libmultilabel")}


def plain_kmeans() -> ModuleType:
    """scikit-learn's k-means under the names of ``sparsekmeans``, which needs GraphBLAS; LibMultiLabel used it before 0.8."""
    from sklearn.cluster import KMeans

    def named(algorithm: str) -> type:
        def fit(self: Any, rows: Any) -> Any:
            return KMeans(algorithm=algorithm, n_init=1, **self.settings).fit(rows).labels_

        def begin(self: Any, **settings: Any) -> None:
            self.settings = {name: value for name, value in settings.items() if name != "verbose"}

        return type(algorithm, (), {"__init__": begin, "fit": fit})

    module = ModuleType("sparsekmeans")
    module.LloydKmeans, module.ElkanKmeans = named("lloyd"), named("elkan")  # type: ignore[attr-defined]
    return module


def best_of(found: Any) -> Any:
    """The labels of a CSR matrix of scores, best first."""
    top = np.full((found.shape[0], TOP), -1)
    for row in range(found.shape[0]):
        own = slice(found.indptr[row], found.indptr[row + 1])
        order = np.argsort(-found.data[own], kind="stable")[:TOP]
        top[row, : len(order)] = found.indices[own][order]
    return top


SYSTEMS: dict[str, Callable[..., Report]] = {
    "omikuji-parabel": lambda *data: omikuji(*data, bonsai=False),
    "omikuji-bonsai": lambda *data: omikuji(*data, bonsai=True),
    "pecos": pecos,
    "napkinxc": napkinxc,
    "libmultilabel": libmultilabel,
}


def main() -> None:
    system, folder, out = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    rows, labels, test = (sparse.load_npz(folder / f"{name}.npz").tocsr() for name in ("train", "train_labels", "test"))
    rows, test = rows.astype(np.float32), test.astype(np.float32)
    for matrix in (rows, labels, test):
        matrix.sort_indices()
    kept = (np.diff(rows.indptr) > 0) & (np.diff(labels.indptr) > 0)
    report = SYSTEMS[system](rows[kept], labels[kept], test)
    np.savez(f"{out}.npz", top=report.pop("top"))
    report["memory"] = largest_memory()
    Path(f"{out}.json").write_text(json.dumps({**report, "threads": THREADS}))


if __name__ == "__main__":
    main()
