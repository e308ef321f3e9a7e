"""The doctor as a package of its own: loaded from overlay/ without FlashInfer around it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "overlay" / "flashinfer" / "flashinfer" / "sm120"
NAME = "overlay_sm120"


def _load() -> None:
    spec = importlib.util.spec_from_file_location(
        NAME, FOLDER / "__init__.py", submodule_search_locations=[str(FOLDER)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)


@pytest.fixture(scope="session")
def sm120() -> Path:
    """The folder of the doctor's modules, which are importable as overlay_sm120.* from then on."""
    if NAME not in sys.modules:
        _load()
    return FOLDER


@pytest.fixture(scope="session")
def module(sm120: Path) -> object:
    """Import one of the doctor's modules by name."""

    def load(name: str) -> ModuleType:
        return importlib.import_module(f"{NAME}.{name}")

    return load
