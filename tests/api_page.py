"""The pages of the public names, docs/api.md and docs/api/: ``python tests/api_page.py`` writes them anew."""

import importlib
import inspect
from pathlib import Path

import manyhot
from manyhot._doors import read_stub

SOURCE = Path(manyhot.__file__).parent
DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "api.md"
PAGES = DOCS / "api"
# Packages whose frameworks are installed apart have pages of their own.
APART = "integrations"
OPENING = """# Public names

Every name below can be imported from its package, `from manyhot.losses import zlpr_loss`, and those marked with a dot from
`manyhot` too. Nothing is loaded before it is used. `help(name)` has shapes, arguments and an example; so have the pages that
the names lead to.
"""
# Pages by subject: file, title, what it is about, and the start of the modules whose names it has. The first that fits counts.
GROUPS = (
    (
        "spans",
        "Spans",
        "Entities: heads, labels, decoding, metrics and training. The page on [spans](../spans.md) shows them together.",
        (
            *("data.spans", "decisions.span", "heads.global_pointer", "heads.rotary", "labels.spans", "metrics.spans"),
            *("scores.spans", "training.spans"),
        ),
    ),
    (
        "losses",
        "Losses",
        "Each loss is a function of `(logits, labels)` and a module with the same settings. [Which loss when](../which-loss.md)"
        " says what each is for.",
        ("losses",),
    ),
    ("labels", "Labels", "Encode, soften, describe and split label sets.", ("labels",)),
    (
        "decisions",
        "Decisions and probabilities",
        "From scores to predictions and probabilities; [decisions](../decisions.md) explains the choices.",
        ("decisions",),
    ),
    ("metrics", "Metrics", "Definitions and edge cases are on the page on [metrics](../metrics.md).", ("metrics",)),
    ("data", "Data", "Files of examples; [files](../data.md) lists the formats.", ("data",)),
    (
        "training",
        "Training, models, scikit-learn",
        "Train, load, evaluate and compare models, and the scikit-learn estimator.",
        ("training", "estimator", "evaluation", "predictor", "comparison"),
    ),
    (
        "many-labels",
        "Very many labels and engines",
        "Scores that are never stored, and heads for them; [very many labels](../very-many-labels.md) shows their use.",
        ("scores", "heads", "engines"),
    ),
    (
        "after-training",
        "Export and curation",
        "Models for other software ([export](../export.md)), and labels that look wrong ([suspects](../suspects.md)).",
        ("export", "curation"),
    ),
)


def packages() -> list[str]:
    """The packages with a door, the top one left out."""
    folders = sorted(path.parent for path in SOURCE.rglob("__init__.pyi"))
    dotted = [".".join(("manyhot", *folder.relative_to(SOURCE).parts)) for folder in folders if folder != SOURCE]
    return [name for name in dotted if APART not in name.split(".")]


def stub(package: str) -> dict[str, str]:
    """The public names of a package and their modules."""
    return read_stub(SOURCE.joinpath(*package.split(".")[1:]) / "__init__.pyi")


def names_of(package: str) -> list[str]:
    """The public names of a package, the top one's own among them where no package has them."""
    return sorted(stub(package), key=str.lower)


def own_names() -> list[str]:
    """Names of the top that no package shows."""
    shown = {name for package in packages() for name in names_of(package)}
    return [name for name in names_of("manyhot") if name not in shown]


def homes() -> dict[str, str]:
    """Every public name with its package, ``manyhot`` where the top has it, and the module it lives in."""
    found = {f"manyhot.{name}": module for name, module in stub("manyhot").items()}
    known = set(stub("manyhot"))
    for package in packages():
        found |= {f"{package}.{name}": module for name, module in stub(package).items() if name not in known}
    return found


def group_of(module: str) -> str:
    """The page of a module's names."""
    inside = module.removeprefix("manyhot.")
    for file, _, _, starts in GROUPS:
        if inside.startswith(starts):
            return file
    raise ValueError(f"no page for names of {module}: add it to GROUPS in tests/api_page.py")


def row(package: str, name: str, *, top: bool) -> str:
    """A line of a table: the name, a dot where the top has it, the first line of its documentation."""
    thing = getattr(importlib.import_module(package), name)
    said = inspect.getdoc(thing) if callable(thing) else None
    first = (said or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|") or "the registry itself"
    dotted = f"manyhot.{name}" if top else f"{package}.{name}"
    return f"| [`{name}`](api/{group_of(stub(package)[name])}.md#{dotted}) | {'·' if top else ''} | {first} |"


def page() -> str:
    """The page that lists all names."""
    top = set(names_of("manyhot"))
    parts = [OPENING]
    for package, names in [("manyhot", own_names()), *((package, names_of(package)) for package in packages())]:
        if names:
            rows = [row(package, name, top=name in top) for name in names]
            parts.append("\n".join([f"## {package}", "", "| name | | what it is |", "|---|---|---|", *rows, ""]))
    return "\n".join(parts)


def group_pages() -> dict[Path, str]:
    """The page of each subject: mkdocstrings puts the documentation of each name in the place of its line."""
    placed: dict[str, list[str]] = {file: [] for file, *_ in GROUPS}
    for dotted, module in homes().items():
        placed[group_of(module)].append(dotted)
    found = {}
    for file, title, about, _ in GROUPS:
        names = sorted(placed[file], key=lambda dotted: dotted.rpartition(".")[2].lower())
        directives = "\n".join(f"\n::: {dotted}" for dotted in names)
        found[PAGES / f"{file}.md"] = f"# {title}\n\n{about}\n{directives}\n"
    return found


def write() -> None:
    """Write all pages."""
    PAGE.write_text(page())
    PAGES.mkdir(exist_ok=True)
    for path, text in group_pages().items():
        path.write_text(text)


if __name__ == "__main__":
    write()
