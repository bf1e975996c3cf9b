"""ctypes bindings for the functions of the CUDA driver and cuBLAS that the GPU benchmarks call.

Matrix products need the driver and cuBLAS; everything else needs only the driver.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from ctypes import c_float, c_int, c_size_t, c_uint64, c_void_p
from pathlib import Path

OUT_OF_MEMORY = 2
BF16, COMPUTE_F32, DEFAULT_ALGORITHM, CUBLAS_OP_N = 14, 68, -1, 0
BYTES_OF_BF16 = 2
CUBLAS = ("libcublas.so.13", "libcublas.so.12", "libcublas.so.11")


class CudaFailed(Exception):
    """A failed call; ``code`` is the error code of the driver or of cuBLAS."""

    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"{name} failed with {code}")
        self.code = code


class Cuda:
    """A context on the first device visible to this process."""

    def __init__(self) -> None:
        """Create the context.

        Raises
        ------
        OSError
            If there is no driver.
        CudaFailed
            If there is no device, or if the device cannot be used.
        """
        self._library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device, self._context = c_int(), c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self.call("cuCtxSetCurrent", self._context)

    def call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise CudaFailed(name, code)

    def allocate(self, size: int) -> int:
        """Allocate ``size`` bytes of device memory and return their address."""
        address = c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), c_size_t(size))
        return address.value

    def clear(self, address: int, size: int) -> None:
        self.call("cuMemsetD8_v2", c_uint64(address), ctypes.c_ubyte(0), c_size_t(size))

    def wait(self) -> None:
        self.call("cuCtxSynchronize")


class Copy:
    """Copies ``size`` bytes repeatedly within the device's memory."""

    def __init__(self, cuda: Cuda, size: int) -> None:
        self._cuda, self._size = cuda, size
        self._source, self._target = cuda.allocate(size), cuda.allocate(size)
        cuda.clear(self._source, size)

    def run(self, times: int) -> None:
        """Copy ``times`` times and wait for the last copy."""
        target, source = c_uint64(self._target), c_uint64(self._source)
        for _ in range(times):
            self._cuda.call("cuMemcpyDtoD_v2", target, source, c_size_t(self._size))
        self._cuda.wait()


# PTX code of a kernel that writes to an invalid address.
INVALID_WRITE_PTX = b""".version 6.0
.target sm_50
.address_size 64
.visible .entry stray() {
    .reg .u64 %a;
    mov.u64 %a, 8;
    st.global.u64 [%a], %a;
    ret;
}
\0"""


def trigger_memory_fault(cuda: Cuda) -> int:
    """Run a kernel that writes to an invalid address.

    Return the error code of the driver; 0 means that the driver reported no error.
    """
    module, function = c_void_p(), c_void_p()
    cuda.call("cuModuleLoadData", ctypes.byref(module), INVALID_WRITE_PTX)
    cuda.call("cuModuleGetFunction", ctypes.byref(function), module, b"stray")
    cuda.call("cuLaunchKernel", function, *[c_int(1)] * 6, c_int(0), None, None, None)
    try:
        cuda.wait()
    except CudaFailed as error:
        return error.code
    return 0


class Product:
    """Multiplies two square bf16 matrices of ``size`` rows repeatedly."""

    def __init__(self, cuda: Cuda, size: int) -> None:
        self._cuda, self._size = cuda, size
        self._cublas = _open_cublas()
        self._handle = c_void_p()
        self._check("cublasCreate_v2", ctypes.byref(self._handle))
        count = size * size * BYTES_OF_BF16
        self._matrices = [cuda.allocate(count) for _ in range(3)]
        for matrix in self._matrices:
            cuda.clear(matrix, count)
        self._one, self._zero = c_float(1), c_float(0)

    @property
    def operations(self) -> int:
        """Return the number of additions and multiplications of one product."""
        return 2 * int(self._size) ** 3

    def run(self, times: int) -> None:
        """Compute the product ``times`` times and wait for the last one."""
        n = c_int(self._size)
        left, right, result = (c_void_p(address) for address in self._matrices)
        for _ in range(times):
            self._check(
                "cublasGemmEx", self._handle, c_int(CUBLAS_OP_N), c_int(CUBLAS_OP_N), n, n, n,
                ctypes.byref(self._one), left, c_int(BF16), n, right, c_int(BF16), n,
                ctypes.byref(self._zero), result, c_int(BF16), n,
                c_int(COMPUTE_F32), c_int(DEFAULT_ALGORITHM),
            )  # fmt: skip
        self._cuda.wait()

    def _check(self, name: str, *arguments: object) -> None:
        code = getattr(self._cublas, name)(*arguments)
        if code:
            raise CudaFailed(name, code)


def _open_cublas() -> ctypes.CDLL:
    for path in _cublas_paths():
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    raise OSError(f"cannot load cuBLAS (tried {', '.join(CUBLAS)})")


def _cublas_paths() -> Iterator[str]:
    """Yield possible paths of cuBLAS: bare names first, then CUDA toolkit and Python packages.

    The dynamic linker finds bare names in its default search path.
    """
    yield from CUBLAS
    folders = [Path("/usr/local/cuda/lib64"), Path("/usr/local/cuda/targets/x86_64-linux/lib")]
    folders += [Path(entry) / "nvidia" / "cublas" / "lib" for entry in sys.path if entry]
    for folder in folders:
        yield from (str(folder / name) for name in CUBLAS)


def unavailable_reason() -> str:
    """Return why CUDA or cuBLAS cannot be used in this process; empty if both can be used."""
    try:
        Cuda()
        _open_cublas()
    except (OSError, CudaFailed) as error:
        return str(error)
    return ""
