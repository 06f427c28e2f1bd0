"""The corpus of hostile files: every format of the registry with every kind of harm."""

from dataclasses import dataclass
from pathlib import Path

from data.hostile.harms import HARMS
from data.hostile.samples import BRAT_TEXT, sample, write_mapped
from data.hostile.special import SPECIAL
from manyhot.data.formats.registry import FORMATS


@dataclass(frozen=True)
class Case:
    """One hostile file: what it holds, its format, the harm, and how it is written."""

    holds: str
    format: str
    harm: str
    special: bool = False

    def __str__(self):
        return f"{self.holds}, {self.format}: {self.harm}"

    def write(self, folder: Path) -> Path:
        """Put the file into an empty folder; its path."""
        key = (self.holds, self.format)
        if self.special:
            return SPECIAL[key][self.harm](folder)
        suffix, content = sample(key)
        harm, more = HARMS[self.harm]
        if self.format == "mapped":
            return write_mapped(folder / "file", harm(content), f"about.json{more}")
        path = folder / f"file{suffix}{more}"
        path.write_bytes(harm(content))
        if self.format == "brat":
            (folder / "file.txt").write_text(BRAT_TEXT)
        return path

    def commands(self, path, run):
        """The command lines to be tried on the file."""
        task = ["--task", "spans"] if self.holds == "spans" else []
        small = ["--model", "linear", "--tune", "none"]
        yield ["inspect", str(path), *task]
        if not task:
            # Training on spans takes too long to be tried on every case.
            yield ["train", str(path), "--run", str(run), "--no-report", "--quiet", "--epochs", "1", *small]


def cases():
    """All cases, in an order that is always the same."""
    keys = [(entry.holds, entry.name) for entry in FORMATS]
    generic = [Case(*key, harm) for key in keys for harm in HARMS]
    return generic + [Case(*key, harm, special=True) for key in keys for harm in SPECIAL.get(key, ())]
