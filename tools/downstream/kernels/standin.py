"""Headers of CUDA libraries of which kernels need a name or two at most; they come in wheels of 400 MB."""

from __future__ import annotations

from pathlib import Path

# cudaUtils.h turns the statuses of cuBLAS into words; no device code has to do with them.
_CUBLAS = """\
#pragma once
enum cublasStatus_t {
  CUBLAS_STATUS_SUCCESS,
  CUBLAS_STATUS_NOT_INITIALIZED,
  CUBLAS_STATUS_ALLOC_FAILED,
  CUBLAS_STATUS_INVALID_VALUE,
  CUBLAS_STATUS_ARCH_MISMATCH,
  CUBLAS_STATUS_MAPPING_ERROR,
  CUBLAS_STATUS_EXECUTION_FAILED,
  CUBLAS_STATUS_INTERNAL_ERROR,
  CUBLAS_STATUS_NOT_SUPPORTED,
  CUBLAS_STATUS_LICENSE_ERROR
};
"""
# CUTLASS fills tensors with random numbers for its own tests; what does is never called.
_CURAND = """\
#pragma once
struct curandState_t {};
__device__ void curand_init(unsigned long long, unsigned long long, unsigned long long, curandState_t*);
__device__ float curand_normal(curandState_t*);
__device__ double curand_normal_double(curandState_t*);
__device__ float curand_uniform(curandState_t*);
__device__ double curand_uniform_double(curandState_t*);
"""
# Where more is asked of an empty one, the compiler says so. --cuda-home of a whole toolkit has the real ones.
_TEXTS = {
    "cublasLt.h": _CUBLAS,
    "cublas_v2.h": _CUBLAS,
    "curand.h": "",
    "curand_kernel.h": _CURAND,
    "curand_philox4x32_x.h": "",
    "nvrtc.h": "",
}


def flags(folder: Path) -> list[str]:
    """Write the headers below *folder*; return what lets a compiler take them where it finds no other."""
    place = folder / "stand-in"
    place.mkdir()
    for name, text in _TEXTS.items():
        (place / name).write_text(text, encoding="ascii")
    return ["-isystem", str(place)]
