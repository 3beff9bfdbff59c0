"""Arrays in safetensors files: written from where they are, read by mapping the file. Floor: saving.

A file is eight bytes that say how long its header is, the header in JSON (dtype, shape and place of each array), then
the arrays, those of the widest dtypes first so that each is aligned; before them there may be some whose sizes are
multiples of eight bytes, written while others were not known yet. What the format has no dtype for is said in the
header's metadata: complex numbers of 128 bits are pairs of float64 there."""

from __future__ import annotations

import json
import math
import mmap
import os
import zlib
from collections.abc import Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import safetensors

from gradtape.ir.dtypes import DType, as_dtype, float64
from gradtape.saving.damage import Damaged, Undigested
from gradtape.saving.files import Settling
from gradtape.saving.values import dims_of

CODES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "float16": "F16",
    "bfloat16": "BF16",
    "uint32": "U32",
    "int32": "I32",
    "float32": "F32",
    "uint64": "U64",
    "int64": "I64",
    "float64": "F64",
    "complex64": "C64",
}
NAMES = {code: name for name, code in CODES.items()}
DIGESTS = "digests"  # of arrays, with their names, dtypes and shapes, in the metadata
NO_DIGEST = "00000000"  # of the length of all of them
ROW = 4096  # bytes, of which a digest has sums
ROWS = 128  # that are added up while they are near
CHECKED = 1 << 24  # bytes of a file whose digests are looked at whenever it is read
WIDEST = 8  # bytes of a number
EARLY = 1 << 24  # bytes of arrays that are written before others are known
ROOM = 1 << 16  # bytes of the header that are kept for these
PAIRS = "complex128"  # the metadata's list of arrays that are pairs of float64
MAX_HEADER = 100_000_000  # what the format allows


class Writing:
    """Arrays on their way to a file: large ones may be written before all are known, and the header comes last.

    Args:
      file: a new one.
      about: further metadata.
    """

    def __init__(self, file: Settling, about: Mapping[str, str] | None = None) -> None:
        self.file, self.about = file, dict(about or {})
        self.given: dict[str, Any] = {}  # arrays by name, as they came
        self.parts: dict[str, Any] = {}  # as they are written
        self.pairs: list[str] = []
        self.entries: dict[str, Any] = {}  # what the header says of them
        self.digests: dict[str, Future[str]] = {}
        self.room = self.end = 0  # bytes of the header, if it has a place yet, and of the arrays
        self.aside = ThreadPoolExecutor(1, "gradtape-digests")

    def __enter__(self) -> Writing:
        return self

    def __exit__(self, *_: object) -> None:
        self.aside.shutdown(cancel_futures=True)

    def begin(self, arrays: Mapping[str, Any]) -> None:
        """Write arrays to which others will be added, so that the disk has work meanwhile. Where they are small that
        does not pay, and those are left out after which others would not be aligned."""
        even = {name: a for name, a in arrays.items() if a.nbytes % WIDEST == 0}
        if sum(a.nbytes for a in even.values()) >= EARLY:
            self._place(even)
            self.room = len(self._head()) + ROOM
            self._write(even)

    def finish(self, arrays: Mapping[str, Any]) -> None:
        """Write all arrays that are not there yet or have changed, and the header."""
        changed = {name for name, a in self.given.items() if arrays[name] is not a}
        more = {name: a for name, a in arrays.items() if name not in self.given}
        for name in changed:
            self._keep(name, arrays[name])
        self._place(more)
        length = len(self._head())
        if length > self.room:
            self.room = length
            self._write(self.given.keys())
        else:
            self._write(changed | more.keys())
        head = self._head({name: d.result() for name, d in self.digests.items()})
        assert len(head) <= self.room
        self.file.seek(0)
        self.file.write(self.room.to_bytes(8, "little") + head.ljust(self.room))

    def _keep(self, name: str, array: Any) -> None:
        self.given[name] = array
        part = np.ascontiguousarray(array).reshape(np.shape(array))
        if part.dtype == np.complex128:
            part = part.reshape(-1).view(np.float64).reshape(*part.shape, 2)
        self.parts[name] = part

    def _place(self, arrays: Mapping[str, Any]) -> None:
        """Give arrays their places after those that are there, the widest first."""
        for name, array in arrays.items():
            self._keep(name, array)
        self.pairs += [name for name, a in arrays.items() if a.dtype == np.complex128]
        for name in sorted(arrays, key=lambda name: (-self.parts[name].dtype.itemsize, name)):
            part = self.parts[name]
            self.entries[name] = {
                "dtype": CODES[as_dtype(part.dtype).name],
                "shape": list(part.shape),
                "data_offsets": [self.end, self.end + part.nbytes],
            }
            self.end += part.nbytes

    def _write(self, names: Collection[str]) -> None:
        """Write arrays to their places, and compute their digests meanwhile."""
        begin = 8 + self.room
        self.file.reserve(begin + self.end)
        for name, entry in self.entries.items():
            if name in names:
                data = _bytes(self.parts[name])
                self.digests[name] = self.aside.submit(_digest, name, entry, data)
                self.file.seek(begin + entry["data_offsets"][0])
                self.file.write(data)

    def _head(self, digests: Mapping[str, str] | None = None) -> bytes:
        """The header; without digests, one that is as long."""
        known = dict.fromkeys(self.entries, NO_DIGEST) if digests is None else digests
        about = {"format": "np", PAIRS: json.dumps(self.pairs), DIGESTS: json.dumps(known), **self.about}
        text = json.dumps({"__metadata__": about, **self.entries}, separators=(",", ":")).encode()
        return text + b" " * (-len(text) % WIDEST)


def write_arrays(file: Settling, arrays: Mapping[str, Any], about: Mapping[str, str] | None = None) -> None:
    """Write arrays, which are no strings, to a new file, with further metadata."""
    with Writing(file, about) as writing:
        writing.finish(arrays)


def _bytes(array: Any) -> Any:
    return array.reshape(-1).view(np.uint8)


def _digest(name: str, entry: Mapping[str, Any], data: Any) -> str:
    """The digest of an array and of what the header says of it: CRC-32 of that, of the last bytes, and of the sums of
    words along rows of 4096 bytes and across them. It takes a fifth of the time of CRC-32 of all bytes."""
    whole = len(data) // ROW * ROW
    words = data[:whole].view("<u8").reshape(-1, ROW // 8)
    along, across = np.zeros(len(words), "<u8"), np.zeros(ROW // 8, "<u8")
    for k in range(0, len(words), ROWS):
        part = words[k : k + ROWS]
        part.sum(1, out=along[k : k + ROWS])
        across += part.sum(0)
    crc = zlib.crc32(json.dumps([name, entry["dtype"], entry["shape"]]).encode())
    for summed in (data[whole:], along, across):
        crc = zlib.crc32(summed.data, crc)
    return f"{crc:08x}"


def map_arrays(path: str, checked: bool = False) -> tuple[dict[str, Any], dict[str, str]]:
    """The arrays of a file, read-only, in the memory that the file is mapped to: nothing is copied; and its metadata.
    `checked`: also large ones are read and compared with their digests.

    Raises:
      Damaged: the file is cut off, or no safetensors file; an array has another digest.
      ValueError: digests are asked for, and an earlier version wrote the file without them.
    """
    try:
        with safetensors.safe_open(path, "np") as opened:  # the library's own checks of the header
            opened.keys()
    except safetensors.SafetensorError as e:
        raise Damaged(f"{os.path.basename(path)} is no safetensors file: {e}") from None
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise Damaged(f"{os.path.basename(path)} is empty")
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    begin, header = _header(mapped)
    about = header.pop("__metadata__", {})
    pairs = json.loads(about.get(PAIRS, "[]"))
    arrays = {name: _array(mapped, begin, name, entry, name in pairs) for name, entry in header.items()}
    if checked or (len(mapped) <= CHECKED and DIGESTS in about):
        _check(path, header, arrays, about)
    return arrays, about


def _check(path: str, header: Mapping[str, Any], arrays: Mapping[str, Any], about: Mapping[str, str]) -> None:
    """Compare arrays with their digests."""
    if DIGESTS not in about:
        raise Undigested(
            f"{path} was written by an earlier version, without digests of its arrays: there is nothing to compare "
            "them with. Load it and save it again."
        )
    digests = json.loads(about[DIGESTS])
    if not isinstance(digests, dict) or digests.keys() != header.keys():
        raise Damaged("the weights have digests of other arrays")
    for name, entry in header.items():
        if _digest(name, entry, _bytes(arrays[name])) != digests[name]:
            raise Damaged(f"the digest of `{name}` in {os.path.basename(path)} is another one: it was changed")


def _header(mapped: mmap.mmap) -> tuple[int, dict[str, Any]]:
    """Where the arrays begin, and what the header says."""
    size = int.from_bytes(mapped[:8], "little")
    if size > min(MAX_HEADER, len(mapped) - 8):
        raise Damaged(f"a header of {size} bytes does not fit into its file")
    header = json.loads(mapped[8 : 8 + size])
    if not isinstance(header, dict):
        raise Damaged("the header of the weights is no object")
    return 8 + size, header


def _array(mapped: mmap.mmap, begin: int, name: str, entry: dict[str, Any], pair: bool) -> Any:
    """One array; what the header says of it fits its place in the file."""
    dtype: DType = _dtype(entry["dtype"])
    shape = dims_of(entry["shape"])
    first, last = entry["data_offsets"]
    count = math.prod(n or 0 for n in shape)
    if last - first != count * dtype.size or not 0 <= first <= last <= len(mapped) - begin:
        raise Damaged(f"the place of `{name}` in the weights does not fit its shape")
    array = np.frombuffer(mapped, dtype.numpy_dtype, count, begin + first).reshape([n or 0 for n in shape])
    if not pair:
        return array
    if dtype is not float64 or shape[-1:] != (2,):
        raise Damaged(f"`{name}` should be pairs of float64")
    return array.view(np.complex128).reshape(array.shape[:-1])


def _dtype(code: Any) -> DType:
    if code not in NAMES:
        raise Damaged(f"weights of dtype {code!r} are not known")
    return as_dtype(NAMES[code])
