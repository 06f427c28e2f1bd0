"""Thumbnails inside a page: PNG as a data URL, using only the standard library."""

from __future__ import annotations

import base64
import struct
import zlib

import torch
from torch import Tensor

LARGEST = 96


def thumbnail(image: Tensor) -> str | None:
    """An image ``[C, H, W]`` as ``data:image/png``, dark for the smallest value, light for the largest.

    Args:
        image: with 1 or 3 channels; None is returned for others. Larger images are downsampled to 96 pixels per side.

    Example:
        >>> thumbnail(torch.eye(2).unsqueeze(0))[:22]
        'data:image/png;base64,'
    """
    if image.ndim != 3 or image.shape[0] not in (1, 3) or not image.numel():
        return None
    every = -(-max(image.shape[1:]) // LARGEST)
    values = image[:, ::every, ::every].double().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    low, high = values.min(), values.max()
    pixels = ((values - low) / (high - low).clamp(min=1e-12) * 255).round().to(torch.uint8)
    channels, height, width = pixels.shape
    rows = pixels.permute(1, 2, 0).reshape(height, -1).numpy()
    raw = b"".join(b"\0" + row.tobytes() for row in rows)
    head = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    parts = _chunk(b"IHDR", head) + _chunk(b"IDAT", zlib.compress(raw, 9)) + _chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + parts).decode()


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
