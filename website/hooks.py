"""What MkDocs does beside its plugins.

Pages from outside docs/ come in, doctests become code that can be copied, and a public name without a page fails the build.
``MANYHOT_REPOSITORY=https://host/owner/manyhot make docs`` gives every page an edit link.
"""

from __future__ import annotations

import ast
import doctest
import os
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
STUB = ROOT / "src" / "manyhot" / "__init__.pyi"
# Pages and files that lie outside docs/: their place in the repository and their place on the site.
OUTSIDE = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "CITATION.cff": "CITATION.cff"}
MEASURED = ROOT / "benchmarks" / "results"

_LINK = re.compile(r"(\]\()([^)#\s]+)(#[^)\s]*)?(\))")
_FENCE = re.compile(r"^```(?:python|pycon)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_DIRECTIVE = re.compile(r"^::: (manyhot(?:\.\w+)+)$", re.MULTILINE)
_SHORT_CODE = re.compile(r"(?<!<pre>)<code>([^<\n]{1,26})</code>")
_documented: set[str] = set()


def places() -> dict[str, str]:
    """Files outside docs/ that the site has, by their path in the repository."""
    measured = {path.relative_to(ROOT).as_posix(): f"measured/{path.name}" for path in sorted(MEASURED.iterdir())}
    return {**OUTSIDE, **measured}


def on_config(config: Any) -> Any:
    """Edit links, where the address of the repository is given."""
    repository = os.environ.get("MANYHOT_REPOSITORY", "").rstrip("/")
    if repository:
        config.repo_url, config.edit_uri = repository, "edit/main/docs/"
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages from outside docs/, and a list of the measurements."""
    _documented.clear()
    for source, target in places().items():
        file = File.generated(config, target, content=(ROOT / source).read_text(encoding="utf-8"))
        file.edit_uri = f"../{source}"  # below docs/, as the edit links of all other pages
        files.append(file)
    files.append(File.generated(config, "measured/index.md", content=measurements()))
    return files


def measurements() -> str:
    """The page that lists the pages of benchmarks/results by their titles."""
    lines = [
        "# Measurements",
        "",
        "Every figure on this site comes from one of these pages. Each names its hardware, versions,",
    ]
    lines += ["command and date.", ""]
    for path in sorted(MEASURED.glob("*.md")):
        title = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        lines.append(f"- [{title}]({path.name})")
    return "\n".join(lines) + "\n"


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:  # noqa: ARG001
    """Point links at the site's places, and turn doctests into code that can be copied."""
    _documented.update(_DIRECTIVE.findall(markdown))
    known = places()
    homes = {target: source for source, target in known.items()}
    folder = os.path.dirname(homes.get(page.file.src_uri, f"docs/{page.file.src_uri}"))

    def relink(found: re.Match[str]) -> str:
        opening, link, anchor, closing = found.groups()
        if "://" in link or link.startswith(("mailto:", "/")):
            return found[0]
        path = os.path.normpath(os.path.join(folder, link))
        if path == "benchmarks/results":
            target = "measured/index.md"
        elif path in known:
            target = known[path]
        elif path.startswith("docs/"):
            target = path.removeprefix("docs/")
        else:
            return found[0]
        return f"{opening}{os.path.relpath(target, os.path.dirname(page.file.src_uri) or '.')}{anchor or ''}{closing}"

    return _FENCE.sub(lambda found: _without_prompts(found[1]) if ">>> " in found[1] else found[0], _LINK.sub(relink, markdown))


def _without_prompts(text: str) -> str:
    """A doctest as plain Python, what it prints as comments after it."""
    lines = []
    for part in doctest.DocTestParser().parse(text):
        if isinstance(part, doctest.Example):
            lines.append(part.source.rstrip("\n"))
            lines += [f"# {line}".rstrip() for line in part.want.rstrip("\n").splitlines()]
        elif part and not part.strip():
            lines.append("")
    return "```python\n" + "\n".join(lines).rstrip("\n") + "\n```"


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:  # noqa: ARG001
    """Keep short code on one line: browsers would break ``--tune`` behind its first dash."""
    return _SHORT_CODE.sub(r'<code class="short">\1</code>', html)


def on_post_build(config: Any) -> None:  # noqa: ARG001
    """Fail where a public name is on no page."""
    lines = ast.parse(STUB.read_text(encoding="utf-8")).body
    public = {
        f"manyhot.{alias.asname or alias.name}" for node in lines if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    missing = sorted(public - _documented)
    if missing:
        raise PluginError(f"public names without a page: {', '.join(missing)}. Run python tests/api_page.py.")
