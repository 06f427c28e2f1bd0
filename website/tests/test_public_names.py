"""A public name without a page fails the build."""

import importlib.util
from pathlib import Path

import pytest
from mkdocs.exceptions import PluginError

HOOKS = Path(__file__).resolve().parents[1] / "hooks.py"


@pytest.fixture
def hooks(monkeypatch, tmp_path):
    """The hooks of the build, with a package of two public names."""
    spec = importlib.util.spec_from_file_location("hooks_under_test", HOOKS)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    stub = tmp_path / "__init__.pyi"
    stub.write_text("from manyhot.losses import binary as bce_loss, zlpr_loss as zlpr_loss\n")
    monkeypatch.setattr(module, "STUB", stub)
    return module


def test_a_public_name_without_a_page_fails_the_build(hooks):
    hooks._documented.add("manyhot.zlpr_loss")
    with pytest.raises(PluginError, match=r"without a page: manyhot\.bce_loss\."):
        hooks.on_post_build(None)


def test_public_names_with_a_page_pass(hooks):
    hooks._documented.update({"manyhot.zlpr_loss", "manyhot.bce_loss"})
    hooks.on_post_build(None)
