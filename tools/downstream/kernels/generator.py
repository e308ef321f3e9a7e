"""Runs inside the build environment: asks the installed FlashInfer for its modules' ninja files.

Usage: generator.py NAME... with CUDA_HOME, FLASHINFER_CUDA_ARCH_LIST and
FLASHINFER_WORKSPACE_BASE set. Prints one JSON document; a name that no
generator takes is listed under "unknown". It imports nothing of the overlay.
"""

import contextlib
import importlib
import inspect
import json
import pkgutil
import sys
from typing import Any


def generators() -> dict[str, Any]:
    """Every ``gen_<name>_module`` below flashinfer.jit that needs no argument, by that name."""
    import flashinfer.jit

    found = {}
    for module in pkgutil.walk_packages(flashinfer.jit.__path__, "flashinfer.jit."):
        with contextlib.suppress(ImportError):
            for name, value in vars(importlib.import_module(module.name)).items():
                if name.startswith("gen_") and name.endswith("_module") and inspect.isfunction(value):
                    needed = [p for p in inspect.signature(value).parameters.values() if p.default is p.empty]
                    if not needed:
                        found[name[4:-7]] = value
    return found


def main(names: list[str]) -> None:
    import flashinfer
    from flashinfer.jit import env

    known = generators()
    specs, failed = [], {}
    for name in names:
        if name not in known:
            continue
        try:
            spec = known[name]()
            spec.ninja_path.parent.mkdir(parents=True, exist_ok=True)
            spec.write_ninja()
        except Exception as exc:  # noqa: BLE001 - whatever the release's generator raises is the answer for this module
            failed[name] = f"{type(exc).__name__}: {exc}"
            continue
        library = spec.build_dir / f"{spec.name}.so"
        found = {"ninja": str(spec.ninja_path), "library": str(library), "generated": str(env.FLASHINFER_GEN_SRC_DIR)}
        specs.append({"module": name, "name": spec.name, **found})
    answer = {
        "version": flashinfer.__version__,
        "aot": str(env.FLASHINFER_AOT_DIR),
        "package": flashinfer.__path__[0],
        "specs": specs,
        "failed": failed,
        "unknown": [name for name in names if name not in known],
        "known": sorted(known),
    }
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        try:
            importlib.import_module("flashinfer.jit")  # prints and logs as it is imported
        except ModuleNotFoundError as missing:
            sys.exit(f"{sys.executable} has no module '{missing.name}', which FlashInfer's generator imports")
    main(sys.argv[1:])
