"""What a device of each architecture allows, as in the tables of the CUDA C++ programming guide."""

from __future__ import annotations

__all__ = [
    "MOST_BLOCK",
    "MOST_GRID",
    "MOST_PARAMETER_BYTES",
    "MOST_REGISTERS",
    "MOST_THREADS",
    "SHARED_BY_OPT_IN",
    "STATIC_SHARED",
    "registers_of_block",
]

MOST_THREADS = 1024
MOST_BLOCK = (1024, 1024, 64)
MOST_GRID = (2**31 - 1, 65535, 65535)
MOST_PARAMETER_BYTES = 4096
MOST_REGISTERS = 65536

# Without asking a block has this much, static and dynamic together; more is dynamic only, and asked for.
STATIC_SHARED = 48 << 10
SHARED_BY_OPT_IN = {
    "sm_75": 64 << 10,
    "sm_80": 163 << 10,
    "sm_86": 99 << 10,
    "sm_87": 163 << 10,
    "sm_89": 99 << 10,
    "sm_90": 227 << 10,
    "sm_100": 227 << 10,
    "sm_103": 227 << 10,
    "sm_120": 99 << 10,
}

WARP = 32
REGISTERS_AT_ONCE = 256  # a warp gets its registers in multiples of this


def registers_of_block(registers: int, threads: int) -> int:
    """Registers that a block of so many threads takes, when each thread needs `registers`."""
    warps = -(-threads // WARP)
    return warps * -(-registers * WARP // REGISTERS_AT_ONCE) * REGISTERS_AT_ONCE
