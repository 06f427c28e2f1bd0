"""Encoders of the transformers package, loaded by name or from a folder: configuration, tokeniser and weights.

Code that comes with an encoder never runs: ``trust_remote_code`` is False, weights must be safetensors, and configuration
entries that would load anything else (kernels, quantisers) are ignored.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

# Most tokens in one forward pass of the encoder, padding included. Larger batches are split into parts with activation
# checkpointing, so that memory does not grow with the batch.
TOKENS_ON_CPU, TOKENS_ON_GPU = 1 << 13, 1 << 15
# Model types whose position ids start at the id of the padding token plus 1.
_POSITIONS_AFTER_PADDING = ("roberta", "camembert", "mpnet", "longformer", "data2vec-text", "xmod", "ibert", "luke", "mluke")
_LEFT_OUT = ("auto_map", "custom_pipelines", "quantization_config", "attn_implementation", "experts_implementation")


class EncoderBody(nn.Module):
    """An encoder, mean pooling over the tokens, and a linear head.

    Args:
        encoder: a transformers module that returns ``last_hidden_state [B, T, H]``.
        hidden: H.
        num_labels: L.
        dropout: dropout probability before the head; the encoder has its own dropout.
        padding: the id of the padding token.
    """

    def __init__(self, encoder: nn.Module, hidden: int, num_labels: int, *, dropout: float, padding: int) -> None:
        super().__init__()
        self.encoder, self.padding = encoder, padding
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(hidden, num_labels)

    def forward(self, batch: Any) -> Tensor:
        """Logits ``[B, L]`` of ``TokenRows``."""
        order = batch.lengths.argsort(stable=True)
        most = TOKENS_ON_CPU if batch.offsets.device.type == "cpu" else TOKENS_ON_GPU
        parts = token_parts(batch.lengths[order].tolist(), most)
        if len(parts) == 1:
            return self._head(self._mean(*batch.padded(self.padding)))
        found = []
        for part in parts:
            padded = batch[order[part]].padded(self.padding)
            again = torch.is_grad_enabled()
            found.append(checkpoint(self._mean, *padded, use_reentrant=False) if again else self._mean(*padded))
        return self._head(torch.cat(found)[order.argsort()])

    def _mean(self, ids: Tensor, there: Tensor) -> Tensor:
        states = self.encoder(input_ids=ids, attention_mask=there.long()).last_hidden_state
        weight = there.to(states.dtype)[:, :, None]
        mean: Tensor = (states * weight).sum(dim=1) / weight.sum(dim=1)
        return mean

    def _head(self, mean: Tensor) -> Tensor:
        out: Tensor = self.head(self.dropout(mean))
        return out


def make_encoder(shape: dict[str, Any]) -> EncoderBody:
    """The body that ``encoder_shape`` describes, with the weights of ``pretrained`` if it is given, otherwise random ones."""
    config = config_of(shape["config"])
    with _quiet():
        if shape.get("pretrained"):
            encoder = _with_weights(config, str(shape["pretrained"]))
        else:
            encoder = _transformers().AutoModel.from_config(config, trust_remote_code=False)
    if config.is_encoder_decoder:
        encoder = encoder.get_encoder()
    if "add_pooling_layer" in inspect.signature(type(encoder).__init__).parameters:
        # The pooler's weights would be saved and never used; these classes accept None instead.
        encoder.pooler = None
    return EncoderBody(
        encoder.float(),
        int(config.hidden_size),
        int(shape["num_labels"]),
        dropout=float(shape["dropout"]),
        padding=int(shape["padding"]),
    )


def encoder_shape(name: str, padding: int) -> dict[str, Any]:
    """The description that ``make_encoder`` builds the encoder called ``name`` from."""
    return {"config": json_config(_read_config(name)), "padding": padding, "pretrained": name}


def read_tokenizer(name: str) -> tuple[dict[str, Any], int, int]:
    """``(tokeniser as JSON, id of its padding token, longest input in tokens)``."""
    config, source = _read_config(name), _source(name)
    with _quiet(), _named(name):
        tokenizer = _transformers().AutoTokenizer.from_pretrained(source, trust_remote_code=False, use_fast=True)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ValueError(f"train: `encoder` must have a fast tokeniser (tokenizer.json); {name!r} has none.")
    padding = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
    longest = [int(tokenizer.model_max_length)]
    positions = getattr(config, "max_position_embeddings", None)
    if isinstance(positions, int) and positions > 0:
        after = any(each in config.model_type for each in _POSITIONS_AFTER_PADDING)
        longest.append(positions - (padding + 1 if after else 0))
    return json.loads(backend.to_str()), int(padding), min(longest)


def encoder_fingerprint(name: str) -> str:
    """A digest of an encoder's configuration, and of its weights (a folder) or its downloaded version (a name)."""
    config, source = _read_config(name), Path(_source(name))
    digest = hashlib.blake2b(json.dumps(json_config(config), sort_keys=True).encode(), digest_size=16)
    digest.update(str(getattr(config, "_commit_hash", None)).encode())
    for path in sorted(source.glob("*.safetensors")) if source.is_dir() else []:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def missing_text_package(package: str) -> ValueError:
    """The error for a package that encoders need and that is not installed."""
    return ValueError(f"train: an encoder needs the package {package}. Install it with: pip install manyhot[text]")


def token_parts(lengths: list[int], most: int) -> list[slice]:
    """Split sorted lengths into parts of at most ``most`` tokens, padding included; a part has at least one row."""
    parts, first = [], 0
    for place in range(1, len(lengths) + 1):
        if place == len(lengths) or (place + 1 - first) * lengths[place] > most:
            parts.append(slice(first, place))
            first = place
    return parts


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise missing_text_package("transformers") from None
    return transformers


def _source(name: str) -> str:
    """The folder, or a name to download; a path that is not a folder is an error."""
    path = Path(name).expanduser()
    if path.is_dir():
        return str(path)
    if path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1 or path.exists():
        raise ValueError(f"train: `encoder` must be the folder of an encoder or a name; there is no folder {name!r}.")
    return name


def _read_config(name: str) -> Any:
    auto = _transformers().AutoConfig
    source = _source(name)
    if Path(source).is_dir():
        _check_index(Path(source))
    with _quiet(), _named(name):
        return auto.from_pretrained(source, trust_remote_code=False)


def _check_index(folder: Path) -> None:
    """Check that all files of sharded weights are in the folder."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        with _named(str(folder)):
            files = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        for file in files:
            if Path(str(file)).name != file:
                raise ValueError(f"train: `encoder` must have its weights in its own folder; {str(index)!r} names {file!r}.")


def _with_weights(config: Any, name: str) -> Any:
    with _named(name):
        encoder, found = _transformers().AutoModel.from_pretrained(
            _source(name), config=config, trust_remote_code=False, use_safetensors=True, output_loading_info=True
        )
    missing = sorted(key for key in found["missing_keys"] if not key.startswith("pooler."))
    if missing:
        raise ValueError(
            f"train: `encoder` must hold all weights; {name!r} has none for {missing[0]!r} ({len(missing)} missing)."
            " Save it again, or choose another encoder."
        )
    for each in (*encoder.parameters(), *encoder.buffers()):
        each.data = each.data.clone()  # as in read_weights: a mapped tensor may start at any address
    return encoder


def json_config(config: Any) -> dict[str, Any]:
    """A transformers configuration as JSON, without entries that would load code or other files."""
    plain: dict[str, Any] = _without_code(json.loads(config.to_json_string(use_diff=False)))
    return {**plain, "model_type": config.model_type}


def _without_code(value: Any) -> Any:
    """A configuration without private entries and without entries that would load code or other files."""
    if isinstance(value, dict):
        kept = {key: part for key, part in value.items() if key not in _LEFT_OUT and not str(key).startswith("_")}
        return {key: _without_code(part) for key, part in kept.items()}
    return [_without_code(part) for part in value] if isinstance(value, list) else value


def config_of(data: dict[str, Any]) -> Any:
    """The transformers configuration from the JSON of ``json_config``."""
    plain = _without_code(dict(data))
    return _transformers().AutoConfig.for_model(plain.pop("model_type"), **plain)


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """Turns every error while an encoder is read into one message with its name."""
    try:
        yield
    except Exception as error:  # several packages, no common base class
        why = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        remedy = "" if Path(name).is_dir() else " Without a network connection, give the folder of an encoder."
        raise ValueError(f"train: the encoder {name!r} could not be read: {why}.{remedy}") from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silences transformers' log and progress bars, and turns off its online conversion of old weights."""
    logging = _transformers().utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    converting = os.environ.get("DISABLE_SAFETENSORS_CONVERSION")
    os.environ["DISABLE_SAFETENSORS_CONVERSION"] = "1"
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
        if converting is None:
            del os.environ["DISABLE_SAFETENSORS_CONVERSION"]
        else:
            os.environ["DISABLE_SAFETENSORS_CONVERSION"] = converting
