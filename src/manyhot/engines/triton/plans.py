"""How rows are divided into tiles, by type, size and kind of labels. The sizes are the fastest measured on an H200."""

from __future__ import annotations

from typing import Any, NamedTuple

CHUNK = 8192
SEGMENT = 32768
SEGMENTS = 128
PAIR = 4096
# Tile of labelwise losses.
TILE = 2048
# The flat labelwise kernel: labels per tile, warps per program, programs per multiprocessor and registers, by form and bytes
# per score. The form is "even" if both sides have the same small whole power, "apart" (with index lists, "apart lists") if a
# margin sets them apart, else "". No more programs than fit at once: with two more per multiprocessor, BCE took a quarter
# longer.
FLAT_TILES: dict[tuple[str, int], tuple[int, int, int, int | None]] = {
    ("even", 2): (2048, 8, 4, 64),
    ("apart", 2): (2048, 8, 6, 40),
    ("apart lists", 2): (4096, 8, 4, 64),
    ("", 2): (2048, 4, 8, 64),
    ("", 4): (1024, 4, 8, 64),
}
# From this many scores on, index lists are first converted to a bitmask, which costs one more launch.
BITMASK_FROM = 1 << 18
# Warps per program and registers per thread for whole rows, by kind of labels, bytes per score and labels per tile, where one
# warp per 1,024 labels is not the fastest. Fewer registers raise the occupancy; index lists keep no labels in registers.
WHOLE: dict[tuple[str, int, int], tuple[int, int | None]] = {
    ("lists", 2, 512): (1, 64),
    ("lists", 2, 1024): (1, 56),
    ("lists", 2, 2048): (2, 64),
    ("lists", 2, 8192): (4, 64),
    ("lists", 2, 16384): (8, 64),
    ("lists", 2, 32768): (16, 64),
    ("lists", 4, 1024): (2, None),
    ("lists", 4, 8192): (8, 64),
    ("lists", 4, 16384): (16, 64),
    ("lists", 4, 32768): (32, 64),
    ("soft", 2, 16384): (16, 64),
    ("hard", 2, 16384): (8, None),
    ("hard", 2, 32768): (16, 64),
    ("hard", 4, 16384): (8, 128),
    ("hard", 4, 32768): (16, 128),
}
# Longer rows: labels per chunk, warps, registers and the most chunks, by kind of labels and bytes per score. The first entry
# that fits is used.
CHUNKS: dict[tuple[str, int], list[tuple[int, int, int | None, int]]] = {
    ("lists", 2): [(8192, 2, 96, 64), (16384, 4, 96, 128)],
    ("lists", 4): [(8192, 2, 168, 128)],
    ("hard", 2): [(8192, 4, 72, 128)],
    ("hard", 4): [(8192, 4, 128, 128)],
    ("soft", 2): [(4096, 4, 64, 64), (8192, 4, None, 128)],
    ("soft", 4): [(4096, 4, None, 128), (8192, 4, 168, 128)],
}
# The same for rows that do not start on a word, where other sizes are faster: the labels at both ends need registers too.
RAGGED_CHUNKS: dict[tuple[str, int], list[tuple[int, int, int | None, int]]] = {
    ("lists", 2): [(8192, 4, 64, 128)],
    ("lists", 4): [(8192, 4, 96, 128)],
    ("hard", 2): [(8192, 4, 80, 128)],
}
# The same for index lists with float16 scores, whose conversion takes more registers.
HALF_LISTS = [(8192, 4, 72, 128)]
# Rows with too many labels for that are read twice (``packed.segments``): 16-byte loads of scores per thread and tile,
# registers, and the bytes of a segment up to which 4 warps read it instead of 8.
LONG_LOADS, LONG_REGISTERS, LONG_SMALL = 2, 64, 48 << 10
# Such rows begin after this many labels, by kind of labels and bytes per score, even if they would fit into chunks.
LONG_FROM = {("soft", 2): 1 << 19, ("soft", 4): 1 << 19}
BLOCK = 4096
# Rows of up to this many labels are always processed by one program.
WHOLE_ROWS = 4096
# Up to this many labels, a tile has many rows, and each program loops over several tiles.
FEW_LABELS = 128
# For such rows: labels per tile, warps per program, programs per multiprocessor, parts that a row is split into, and registers.
# First for rows padded to fewer than 64 labels, then for longer ones by kind of labels and bytes per score.
FEW_SHORTEST: tuple[int, int, int, int, int | None] = (1024, 4, 8, 1, None)
FEW_TILES: dict[tuple[str, int], tuple[int, int, int, int, int | None]] = {
    ("lists", 2): (4096, 8, 4, 2, 64),
    ("lists", 4): (2048, 8, 4, 1, None),
    ("dense", 2): (4096, 8, 3, 2, 80),
    ("dense", 4): (2048, 8, 4, 1, None),
}
# Up to this many programs (for rows in chunks: first chunks), the kernel itself does the final reduction.
FEW_SHORT = 4096
# Distance between the counters of two rows, in int32: each has a cache line to itself, because hundreds of programs poll it.
COUNTER_STRIDE = 32


def blocks(size: int, block: int) -> int:
    """The number of blocks that cover ``size``."""
    return -(-size // block)


class Plan(NamedTuple):
    """How rows are divided: the kernel, rows per tile, labels per tile (``block``), chunks per row, labels per chunk
    (``segment``), warps per program, and the register limit per thread where the assembler would use too many. A chunk can be a
    tile and a smaller tile after it."""

    kernel: str
    rows: int
    block: int
    chunks: int
    segment: int
    warps: int
    registers: int | None = None


def plan(
    num_rows: int,
    num_labels: int,
    *,
    lean: bool,
    stage: str,
    score_bytes: int = 4,
    lists: bool = False,
    packed: str | None = None,
    few: bool = False,
    half: bool = False,
    together: int | None = None,
) -> Plan:
    """The plan for a stage. Rows of up to 8,192 labels stay whole, and several short ones share a tile. For a loss with its
    gradient, longer rows are divided into chunks whose programs wait for each other, or into segments that are read twice. Rows
    that can be read as words have plans of their own; ``packed`` is then the kind of their labels.

    The choice between chunks and segments was measured: half types spend their time on arithmetic, and chunks that wait do
    less of it at once. ``together`` is a lower bound on the programs that run at once. It is None in the interpreter, where no
    program can wait for another.
    """
    if few and num_labels <= FEW_LABELS:
        return few_plan(num_labels, score_bytes, lists=lists)[0]
    found = _packed_plan(num_rows, num_labels, score_bytes, packed, half, together) if packed else None
    if found is not None:
        return found
    block = max(16, 1 << max(num_labels - 1, 0).bit_length())
    fast = lean and stage == "fused"
    if block <= CHUNK:
        rows = max(1, min((2048 if fast and not lists else 1024) // block, 1 << max(num_rows - 1, 0).bit_length()))
        return Plan("rows", rows, block, 1, block, min(16, max(1, rows * block // (1024 if fast else 512))))
    chunks = -(-num_labels // CHUNK)
    if stage != "fused":
        return Plan("rows", 1, CHUNK, chunks, CHUNK, 16)
    if fast and lists and block <= 2 * CHUNK:
        return Plan("rows", 1, block, 1, block, max(1, block // 2048))
    pieces = -(-num_labels // BLOCK)
    if fast and not lists and score_bytes == 4 and together is not None and pieces <= min(SEGMENTS, together):
        return Plan("rows", 1, BLOCK, pieces, BLOCK, 4)
    most = SEGMENTS if together is None else min(SEGMENTS, together)
    segment = max(SEGMENT, 2 * BLOCK * blocks(blocks(num_labels, most), 2 * BLOCK))
    large = fast and not lists and score_bytes == 4 and segment == SEGMENT
    block, warps, registers = (2 * BLOCK, 16, None) if large else (BLOCK if lean else BLOCK // 2, 8, None)
    if fast and segment > SEGMENT:
        block, warps, registers = (BLOCK // 4, 4, 64) if lists else (BLOCK // 2, 8, 64)
    return Plan("segments", 1, block, -(-num_labels // segment), segment, warps, registers)


def few_plan(num_labels: int, score_bytes: int, *, lists: bool) -> tuple[Plan, int]:
    """The plan for rows of few labels, and its programs per multiprocessor. It does not depend on the number of rows, so that
    all batches share one kernel."""
    segment = max(2, 1 << (num_labels - 1).bit_length())
    tile = FEW_TILES["lists" if lists else "dense", score_bytes] if segment >= 64 else FEW_SHORTEST
    size, warps, each, parts, registers = tile
    return Plan("few", size // segment, segment // parts, 1, segment, warps, registers), each


def _packed_plan(num_rows: int, num_labels: int, score_bytes: int, kind: str, half: bool, together: int | None) -> Plan | None:
    """The plan for rows read as words: whole rows if a program can hold them, else chunks or segments that wait for each other;
    None if neither is possible. All sizes are measured.

    A row that is slightly longer than a power of two is a tile of that size and a smaller one. A program has several short
    rows, but only one row with an index list.
    """
    block, whole = max(16, 1 << (num_labels - 1).bit_length()), 1 << (num_labels.bit_length() - 1)
    tail = max(16, 1 << max(num_labels - whole - 1, 0).bit_length())
    if block <= 256:
        rows = min(1024 // block, 1 << max(num_rows - 1, 0).bit_length())
        return None if kind == "lists" else Plan("packed", rows, block, 1, block, max(1, rows * block // 512))
    few = together is not None and num_rows < together
    most = 4096 if few else (16384 if score_bytes == 2 or kind == "lists" else 8192)
    if whole < num_labels and tail < whole <= most:
        if whole * score_bytes > 32768:
            return Plan("packed", 1, whole, 1, whole + tail, 16, 128)
        warps = max(1, whole * score_bytes // 2048)
        return Plan("packed", 1, whole, 1, whole + tail, warps, 64 if kind != "soft" or warps == 16 else None)
    # Three chunks of float32 are faster than one tile that is less than three quarters full.
    loose = (kind, score_bytes) == ("hard", 4) and 16384 < num_labels <= 3 * CHUNK and together is not None
    if block <= (8192 if few else (16384 if loose or (kind, score_bytes) == ("soft", 4) else 32768)):
        return Plan("packed", 1, block, 1, block, *WHOLE.get((kind, score_bytes, block), (max(1, block // 1024), None)))
    if num_labels > LONG_FROM.get((kind, score_bytes), num_labels):
        return _long_plan(num_labels, score_bytes, kind, together)
    ragged = num_labels % ((16 if kind == "lists" else 8) // score_bytes) != 0
    options = HALF_LISTS if half and kind == "lists" else CHUNKS[kind, score_bytes]
    for chunk, warps, registers, most in RAGGED_CHUNKS.get((kind, score_bytes), options) if ragged else options:
        pieces = -(-num_labels // chunk)
        if together is not None and pieces <= min(most, together):
            return Plan("packed", 1, chunk, pieces, chunk, warps, registers)
    return _long_plan(num_labels, score_bytes, kind, together)


def _long_plan(num_labels: int, score_bytes: int, kind: str, together: int | None) -> Plan | None:
    """The plan for rows that are read as words twice, the second time as far as possible from cache; None if programs cannot
    wait."""
    if together is None:
        return None
    labels = blocks(num_labels, min(SEGMENTS, together))
    size = labels * (score_bytes + {"lists": 0, "hard": 1, "soft": score_bytes}[kind])
    warps = 4 if size <= LONG_SMALL else 8
    block = 32 * warps * LONG_LOADS * 16 // score_bytes
    segment = block * blocks(labels, block)
    return Plan("words", 1, block, blocks(num_labels, segment), segment, warps, LONG_REGISTERS)


def adds_up(cut: Plan, programs: int) -> bool:
    """Whether the last program sums the partial results of all programs (for rows in chunks: of the first chunks).

    The more programs there are, the longer it reads. Segments lose more by it.
    """
    return programs <= cut.chunks * FEW_SHORT and (cut.chunks == 1 or cut.kernel in ("packed", "words", "waiting"))


def cut_rows(together: int | None, num_rows: int, num_labels: int, **about: Any) -> tuple[Plan, int]:
    """The plan if at least ``together`` programs run at once, and the number of programs to launch."""
    cut = plan(num_rows, num_labels, together=together, **about)
    programs = blocks(num_rows, cut.rows) * cut.chunks
    if cut.kernel == "few":
        most = 2 if together is None else together * few_plan(num_labels, about["score_bytes"], lists=about["lists"])[1]
        programs = min(programs, most)
    return cut, programs


def cut_labels(_together: int | None, num_rows: int, num_labels: int, *, score_bytes: int, **_: Any) -> tuple[Plan, int]:
    """``cut_rows`` for labelwise losses."""
    cut = label_plan(num_rows, num_labels, score_bytes=score_bytes)
    return cut, blocks(num_rows, cut.rows) * cut.chunks


def label_plan(num_rows: int, num_labels: int, *, score_bytes: int) -> Plan:
    """Tiles of labelwise losses: 16 labels per thread in half types, 8 in float32."""
    block, each = max(16, 1 << max(num_labels - 1, 0).bit_length()), 512 if score_bytes == 2 else 256
    if block > (2 * TILE if score_bytes == 2 else TILE):
        return Plan("rows", 1, TILE, blocks(num_labels, TILE), TILE, max(1, TILE // each))
    rows = max(1, min(1024 // block, 1 << max(num_rows - 1, 0).bit_length()))
    return Plan("rows", rows, block, 1, block, max(1, rows * block // each))


def cut_flat(together: int | None, size: int, *, score_bytes: int, form: str = "") -> tuple[Plan, int]:
    """``cut_rows`` for flattened scores; programs loop over tiles."""
    tile, warps, each, registers = FLAT_TILES.get((form, score_bytes), FLAT_TILES["", score_bytes])
    most = 2 if together is None else min(together * each, FEW_SHORT)
    return Plan("flat", 1, tile, 1, tile, warps, registers), max(1, min(size // tile, most))
