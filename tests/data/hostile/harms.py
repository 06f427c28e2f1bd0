"""What is done to a good file of any format: each harm is a function from bytes to bytes, and to the suffix it adds."""

import bz2
import gzip
import lzma
import random
import re
from functools import cache, partial

LONG = 20 * 2**20


def cut(share, content):
    return content[: int(len(content) * share)]


def flipped(seed, content):
    draw, bent = random.Random(seed), bytearray(content)
    for _ in range(4):
        bent[draw.randrange(len(bent))] = draw.randrange(256)
    return bytes(bent)


def inserted(what, content, *, share=0.5):
    place = int(len(content) * share)
    return content[:place] + what + content[place:]


def appended(what, content):
    return content + what


def in_line(number, what, content):
    """``what`` in the middle of a line."""
    lines = content.split(b"\n")
    number = min(number, len(lines) - 1)
    middle = len(lines[number]) // 2
    lines[number] = lines[number][:middle] + what + lines[number][middle:]
    return b"\n".join(lines)


def first_number_is(what, content):
    """Another number for the first one of the second half of the file."""
    half = len(content) // 2
    return content[:half] + re.sub(rb"\d+(\.\d+)?", lambda _: what, content[half:], count=1)


def every_number_is(what, content):
    return re.sub(rb"\d+(\.\d+)?", lambda _: what, content)


def reversed_lines(content):
    return b"\n".join(reversed(content.split(b"\n")))


@cache
def zeros_gz():
    return gzip.compress(bytes(100 * 2**20), 9)


@cache
def newlines_gz():
    return gzip.compress(b"\n" * (40 * 2**20), 9)


@cache
def zeros_xz():
    return lzma.compress(bytes(100 * 2**20), preset=1)


# Name to (function from bytes to bytes, suffix that is added).
HARMS = {
    "nothing": (lambda content: content, ""),
    "empty": (lambda _: b"", ""),
    "blank lines": (lambda _: b"\n \n\t\n", ""),
    "zeros": (lambda _: bytes(5000), ""),
    "random bytes": (lambda _: random.Random(0).randbytes(10_000), ""),
    "one byte short": (lambda content: content[:-1], ""),
    "no line end": (lambda content: content.rstrip(b"\n"), ""),
    "a byte order mark": (partial(inserted, b"\xef\xbb\xbf", share=0), ""),
    "UTF-16": (lambda content: content.decode("latin1").encode("utf-16"), ""),
    "a latin1 byte": (partial(inserted, b"\xe9"), ""),
    "a zero byte": (partial(inserted, b"\x00"), ""),
    "a form feed": (partial(inserted, b"\x0c"), ""),
    "escape sequences": (partial(inserted, b"\x1b[31m\x1b]0;x\x07"), ""),
    "odd blanks": (partial(inserted, " \u2028\u00a0\u3000\u200e".encode()), ""),
    "half a surrogate": (partial(inserted, b"\xed\xa0\x80"), ""),
    "carriage returns": (lambda content: content.replace(b"\n", b"\r\n"), ""),
    "carriage returns alone": (lambda content: content.replace(b"\n", b"\r"), ""),
    "twice": (lambda content: content + content, ""),
    "reversed lines": (reversed_lines, ""),
    "the first line gone": (lambda content: content.partition(b"\n")[2], ""),
    "no digits": (partial(every_number_is, b"x"), ""),
    "a line of 20 MB": (partial(appended, b"a" * LONG), ""),
    "a token of 2 MB": (partial(in_line, 3, b"a" * 2**21), ""),
    "60,000 blanks in the first line": (partial(in_line, 0, b" " * 60_000), ""),
    "60,000 blanks in a row": (partial(in_line, 4, b" " * 60_000), ""),
    "60,000 commas": (partial(in_line, 4, b"," * 60_000), ""),
    "60,000 quotation marks": (partial(in_line, 4, b'"' * 60_001), ""),
    "60,000 apostrophes": (partial(in_line, 2, b"'" * 60_001), ""),
    "60,000 backslashes": (partial(in_line, 2, b"\\" * 60_001), ""),
    "60,000 tabs": (partial(in_line, 4, b"\t" * 60_000), ""),
    "100,000 brackets": (partial(appended, b"[" * 100_000 + b"\n"), ""),
    "100,000 braces": (partial(appended, b'{"a":' * 100_000 + b"\n"), ""),
    "200,000 blank lines": (partial(inserted, b"\n" * 200_000, share=0), ""),
    "a cut gz": (lambda content: cut(0.6, gzip.compress(content)), ".gz"),
    "a gz with an end": (lambda content: gzip.compress(content) + b"and more", ".gz"),
    "a bent gz": (lambda content: flipped(3, gzip.compress(content)), ".gz"),
    "a cut bz2": (lambda content: cut(0.6, bz2.compress(content)), ".bz2"),
    "a cut xz": (lambda content: cut(0.6, lzma.compress(content)), ".xz"),
    "a broken zst": (lambda _: b"\x28\xb5\x2f\xfd and so on", ".zst"),
    "gz in gz": (lambda content: gzip.compress(gzip.compress(content)), ".gz"),
    "a gz bomb of zeros": (lambda _: zeros_gz(), ".gz"),
    "a gz bomb after good rows": (lambda content: gzip.compress(content) + zeros_gz(), ".gz"),
    "a gz bomb of line ends": (lambda content: gzip.compress(content) + newlines_gz(), ".gz"),
    "an xz bomb of zeros": (lambda content: lzma.compress(content) + zeros_xz(), ".xz"),
}
NUMBERS = (b"-1", b"1.7", b"1e400", b"nan", b"inf", b"99999999999999999999", b"2147483646", b"1" * 5000)
HARMS |= {f"cut at {share}": (partial(cut, share), "") for share in (0.1, 0.3, 0.5, 0.8)}
HARMS |= {f"bent {seed}": (partial(flipped, seed), "") for seed in range(4)}
HARMS |= {f"a number that is {number[:24].decode()}": (partial(first_number_is, number), "") for number in NUMBERS}
