"""Keep freed memory for the next training step instead of returning it to the system.

glibc returns memory as soon as a few MiB at the end of its heap are free. Each step frees and allocates its activations: the
system would zero and map up to tens of thousands of pages again in every step.
"""

import ctypes
import platform
from functools import cache

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # malloc.h
_MAX_FREE = 1 << 30  # bytes that may stay free at the end of the heap
_MIN_GROWTH = 64 << 20  # bytes that the heap grows by, at least
_SEPARATE = 32 << 20  # size from which a block is mapped separately and returned: the maximum of glibc


@cache
def keep_freed_memory() -> bool:
    """Keep up to 1 GiB of freed memory; return False if the allocator is not glibc's, or refuses. Peak memory hardly grows."""
    if platform.libc_ver()[0] != "glibc":
        return False
    set_option = ctypes.CDLL(None).mallopt
    options = {_MMAP_THRESHOLD: _SEPARATE, _TRIM_THRESHOLD: _MAX_FREE, _TOP_PAD: _MIN_GROWTH}
    return all(set_option(option, value) == 1 for option, value in options.items())
