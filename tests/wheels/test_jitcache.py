"""The jit cache's version, which FlashInfer's own rule reads."""

from __future__ import annotations

import pytest

from downstream.wheels.jitcache import version_for


@pytest.mark.parametrize(
    ("flashinfer", "cuda", "version"),
    [
        ("0.6.3+sm120.1", "13.0.88", "0.6.3+sm120.1.cu130"),
        ("0.6.3+sm120.12", "13.0.48", "0.6.3+sm120.12.cu130"),
        ("0.6.3", "13.0.88", "0.6.3+cu130"),
        ("0.6.3.post1", "12.9.41", "0.6.3.post1+cu129"),
    ],
)
def test_the_version_is_flashinfer_s_with_the_cuda_label(flashinfer: str, cuda: str, version: str) -> None:
    assert str(version_for(flashinfer, cuda)) == version
