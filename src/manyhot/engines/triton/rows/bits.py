"""Index lists as bits (CUDA): all labels of a short row at once, instead of one after the other."""

from __future__ import annotations

import triton
import triton.language as tl

# The most listed labels of a row that are read at once; longer lists take several rounds.
AT_ONCE = tl.constexpr(8)


@triton.jit
def _either(a, b):
    return a | b


@triton.jit
def listed_words(offsets, indices, rows, in_rows, SEGMENT: tl.constexpr):
    """The listed labels of each row as bits of two words, of 64 labels each."""
    start, left = list_ends(offsets, rows, in_rows)
    return words_of_lists(indices, start, left, first_entries(indices, start, left, SEGMENT), 0, SEGMENT)


@triton.jit
def list_ends(offsets, rows, in_rows):
    """Where the lists of rows start, and how many labels they have."""
    start = tl.load(offsets + rows, mask=in_rows, other=0)
    return start, (tl.load(offsets + rows + 1, mask=in_rows, other=0) - start).to(tl.int32)


@triton.jit
def first_entries(indices, start, left, SEGMENT: tl.constexpr):
    """The first labels of each list, -1 after its end: AT_ONCE of them, or SEGMENT if rows have fewer labels."""
    lanes = tl.arange(0, min(AT_ONCE, SEGMENT))[None, :]
    return tl.load(indices + start[:, None] + lanes, mask=lanes < left[:, None], other=-1).to(tl.int32)


@triton.jit
def words_of_lists(indices, start, left, entries, first, SEGMENT: tl.constexpr):
    """Lists as bits of two words, for the labels from ``first`` on; others have no bit. ``entries``: see ``first_entries``."""
    LANES: tl.constexpr = min(AT_ONCE, SEGMENT)
    low, high = _entry_bits(entries - first, SEGMENT)
    done = LANES
    while done < tl.max(left, axis=0):
        more_low, more_high = _entry_bits(first_entries(indices, start + done, left - done, SEGMENT) - first, SEGMENT)
        low, high = low | more_low, high | more_high
        done += LANES
    return low, high


@triton.jit
def _entry_bits(place, SEGMENT: tl.constexpr):
    """The bits of some labels of each row in two words; labels past the words, or below 0, have none."""
    bit = tl.full([1, 1], 1, tl.int64) << (place & 63).to(tl.int64)
    low = tl.reduce(tl.where((place >> 6) == 0, bit, 0), 1, _either)
    high = low
    if SEGMENT > 64:
        high = tl.reduce(tl.where((place >> 6) == 1, bit, 0), 1, _either)
    return low, high


@triton.jit
def _word_at(low, high, first, columns, BLOCK: tl.constexpr):
    """The word, ``low`` or ``high``, that has the bits of each column; there are BLOCK labels from ``first`` on."""
    if first >= 64:
        word = high[:, None]
    elif first + BLOCK > 64:
        word = tl.where((columns < 64)[None, :], low[:, None], high[:, None])
    else:
        word = low[:, None]
    return word


@triton.jit
def listed_near(low, high, first, BLOCK: tl.constexpr, PER: tl.constexpr):
    """The bits of BLOCK labels from ``first`` on, PER neighbours in one integer, ``[ROWS, BLOCK // PER]``."""
    if BLOCK == 2 * PER * AT_ONCE:
        # A row has as many threads as entries were read at once, with two words each. Triton would move all scores to threads
        # with one word each, where it has the bits, if these were not made for two words at once.
        columns = first + tl.arange(0, AT_ONCE) * (2 * PER)
        both = (_word_at(low, high, first, columns, BLOCK) >> (columns & 63)[None, :].to(tl.int64)).to(tl.int32)
        near = tl.reshape(tl.join(both, both >> PER), [low.shape[0], BLOCK // PER])
    else:
        columns = first + tl.arange(0, BLOCK // PER) * PER
        near = (_word_at(low, high, first, columns, BLOCK) >> (columns & 63)[None, :].to(tl.int64)).to(tl.int32)
    return near & ((1 << PER) - 1)


@triton.jit
def listed_bits(low, high, first, columns, BLOCK: tl.constexpr, NEAR: tl.constexpr):
    """Which labels of the tile are listed. A thread has NEAR neighbours: it shifts once, and tests bits at fixed positions."""
    shift, bit = columns & (63 & ~(NEAR - 1)), columns & (NEAR - 1)
    word = _word_at(low, high, first, columns, BLOCK)
    near = (word >> shift[None, :].to(tl.int64)).to(tl.int32)
    return (near & (1 << bit)[None, :]) != 0


@triton.jit
def bitmask_tile(bits, first, in_rows, ROWS: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr):
    """Which of BLOCK labels are set in the bitmask (``bitmask.bitmask_kernel``), from bit ``first`` of each row on, a multiple
    of GROUP. Bits past the end of a row belong to the next row."""
    if ROWS > 1:
        # Triton spreads the first axis over neighbouring threads. Were these rows, it would move all scores to match.
        at = tl.arange(0, BLOCK // GROUP)[:, None] * GROUP + first[None, :]
        near = tl.trans(tl.load(bits + at // 8, mask=in_rows[None, :], other=0).to(tl.int32))[:, :, None]
        at = tl.trans(at)[:, :, None]
    else:
        at = first[:, None, None] + tl.arange(0, BLOCK // GROUP)[None, :, None] * GROUP
        near = tl.load(bits + at // 8, mask=in_rows[:, None, None], other=0).to(tl.int32)
    if GROUP == 4:
        near = near >> (at % 8).to(tl.int32)
    return tl.reshape((near & (1 << tl.arange(0, GROUP)[None, None, :])) != 0, [ROWS, BLOCK])
