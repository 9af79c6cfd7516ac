"""Keep freed memory for the next training step instead of returning it to the system.

glibc returns memory as soon as a few MiB at the end of its heap are free. A step frees its activations and the next asks for as
many: each page is then zeroed and mapped anew, tens of thousands of them in a step of wide towers.
"""

import ctypes
import platform
from functools import cache

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # malloc.h
_KEPT = 1 << 30  # bytes free at the heap's end that this process keeps
_AT_ONCE = 64 << 20  # bytes that the heap grows by, at least
_APART = 32 << 20  # from so many bytes on a block is mapped by itself, and given back: glibc's own maximum


@cache
def keep_freed_memory() -> bool:
    """Have this process keep up to 1 GiB of what it frees; False where its allocator is not glibc's, or refuses.

    Peak memory stays what it is, but for the heap's holes.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    set_option = ctypes.CDLL(None).mallopt
    options = {_MMAP_THRESHOLD: _APART, _TRIM_THRESHOLD: _KEPT, _TOP_PAD: _AT_ONCE}
    return all(set_option(option, value) == 1 for option, value in options.items())
