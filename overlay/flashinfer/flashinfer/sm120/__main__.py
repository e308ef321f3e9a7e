"""``python -m flashinfer.sm120 doctor``, or ``python …/flashinfer/sm120 doctor`` where the package does not import."""

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import NoReturn


def run() -> NoReturn:
    """Answer the command line and leave with its exit code."""
    if not __package__:
        # Run as a folder: give the modules beside this file a package, without importing FlashInfer.
        folder = Path(__file__).resolve().parent
        spec = importlib.util.spec_from_file_location(
            "flashinfer_sm120", folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert spec is not None
        sys.modules["flashinfer_sm120"] = importlib.util.module_from_spec(spec)
    doctor = importlib.import_module(".doctor", __package__ or "flashinfer_sm120")
    sys.exit(doctor.main(sys.argv[1:]))


if __name__ == "__main__":
    run()
