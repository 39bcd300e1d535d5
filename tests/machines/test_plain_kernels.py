"""Machines differ in their kernels. The suite must pass on those without bf16 too."""

from __future__ import annotations

import os
import warnings

import pytest
import torch

# What torch says once a process on a processor without bf16 kernels, before it takes others (LinearAlgebra.cpp).
WITHOUT_BF16 = (
    "mkldnn_matmul failed, switching to baddbmm:could not create a primitive descriptor",
    "mkldnn_bf16_gemm failed, switching to BLAS gemm: could not create a primitive",
)


@pytest.mark.parametrize("text", WITHOUT_BF16)
def test_what_torch_says_on_plain_kernels_is_no_error(text):
    warnings.warn(text, UserWarning, stacklevel=1)


def test_other_warnings_stay_errors_on_plain_kernels():
    with pytest.raises(UserWarning, match="another"):
        warnings.warn("another thing failed", UserWarning, stacklevel=1)


def test_plain_kernels_are_plain():
    """`make test-plain-kernels` gets what it asks for."""
    if os.environ.get("ATEN_CPU_CAPABILITY") != "default":
        pytest.skip("for `make test-plain-kernels`")
    assert torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "NO AVX")
