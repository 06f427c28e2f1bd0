"""The arrays of an ``.npz`` archive, with every claimed size checked.

``numpy.load`` allocates whatever an array's header claims and decompresses without a limit. Here a header must fit the bytes of
the archive, the expansion of the compressed bytes is limited, and the index arrays of a sparse matrix must confirm its number
of rows. Nothing is unpickled.
"""

from __future__ import annotations

import math
import zipfile
from typing import IO, Any

import numpy as np

from manyhot.data.files.streams import FREE_BYTES

Array = np.ndarray[Any, Any]
# The largest number of rows of a csc or coo matrix, whose index arrays cannot confirm that number.
MOST_ROWS = 2**24


class NpzArrays:
    """The arrays of an archive by name.

    Args:
        source: a path, or a stream that can seek.
        max_expansion: the largest factor by which a compressed array may expand, from 8 MiB on.

    Example:
        >>> import io
        >>> stream = io.BytesIO()
        >>> np.savez(stream, X=np.eye(2))
        >>> with NpzArrays(stream, max_expansion=256) as arrays:
        ...     arrays.names, arrays.array("X").tolist()
        ({'X'}, [[1.0, 0.0], [0.0, 1.0]])
    """

    def __init__(self, source: str | IO[bytes], *, max_expansion: int) -> None:
        self.archive = zipfile.ZipFile(source)
        self.max_expansion = max_expansion
        self.names = {info.filename.removesuffix(".npy") for info in self.archive.infolist()}

    def __enter__(self) -> NpzArrays:
        return self

    def __exit__(self, *_: object) -> None:
        self.archive.close()

    def array(self, name: str) -> Array:
        """One array; ValueError if it does not match its header."""
        info = self.archive.getinfo(f"{name}.npy" if f"{name}.npy" in self.archive.NameToInfo else name)
        if info.file_size > max(FREE_BYTES, self.max_expansion * info.compress_size):
            raise ValueError(
                f"array {name!r} expands by more than a factor of {self.max_expansion} when it is decompressed;"
                " if that is intended, raise `max_expansion`"
            )
        with self.archive.open(info) as stream:
            version = np.lib.format.read_magic(stream)
            if version not in ((1, 0), (2, 0)):
                raise ValueError(f"array {name!r} has the unknown version {version}")
            read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, by_columns, kind = read_header(stream)
            if kind.hasobject:
                raise ValueError(f"array {name!r} holds pickled objects, which are never read")
            size = math.prod(shape) * kind.itemsize
            if not 0 <= size <= info.file_size - stream.tell():
                raise ValueError(f"array {name!r} claims the shape {list(shape)}, but has fewer bytes")
            content = stream.read(size)
        if len(content) != size:
            raise ValueError(f"array {name!r} is truncated")
        return np.frombuffer(content, dtype=kind).reshape(shape, order="F" if by_columns else "C")

    def sparse_matrix(self) -> Any:
        """The scipy matrix that fills the archive, as CSR with each entry once."""
        from scipy import sparse

        kind = self.array("format").item()
        kind = kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)
        if kind not in ("csr", "csc", "coo"):
            raise ValueError(f"a sparse matrix must be stored as csr, csc or coo; got {kind!r}. Save matrix.tocsr()")
        shape = tuple(self.array("shape").astype(np.int64).tolist())
        if len(shape) != 2 or min(shape) < 0:
            raise ValueError(f"the matrix must have two axes; got the shape {list(shape)}")
        if kind != "csr" and shape[0] > MOST_ROWS:
            raise ValueError(
                f"a matrix stored as {kind} must have at most {MOST_ROWS:,} rows; got {shape[0]:,}. Save matrix.tocsr()"
            )
        if kind == "csc" and shape[1] + 1 != self.array("indptr").size:
            raise ValueError(f"the matrix claims {shape[1]:,} columns, but its index pointers have another number")
        names = ("data", "row", "col") if kind == "coo" else ("data", "indices", "indptr")
        data, one, other = (self.array(name).copy() for name in names)
        if kind == "coo":
            matrix = sparse.coo_matrix((data, (one, other)), shape=shape).tocsr()
        else:
            made = (sparse.csr_matrix if kind == "csr" else sparse.csc_matrix)((data, one, other), shape=shape)
            made.check_format(full_check=True)
            matrix = sparse.csr_matrix(made)
        matrix.check_format(full_check=True)
        matrix.sum_duplicates()
        return matrix
