"""Freed memory: kept for the next step of training in the place of being given back to the system after each.

glibc gives memory back as soon as a few MiB at the end of its heap are free. A step of training frees its activations at its
end, and the next asks for as much: each page is then zeroed and mapped anew, in a step of wide towers ten thousands of them.
"""

import ctypes
import platform
from functools import cache

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # malloc.h
_KEPT = 1 << 30  # bytes free at the heap's end that this process keeps
_AT_ONCE = 64 << 20  # bytes that the heap grows by, at least
_APART = (
    32 << 20
)  # from so many bytes on a block is mapped by itself, and given back; the most that glibc comes to by itself


@cache
def keep_freed_memory() -> bool:
    """Have this process keep up to 1 GiB of what it frees, where its allocator is glibc's; False where it is another, or refuses.

    Memory at its peak stays what it is, but for what the heap's holes take.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    set_option = ctypes.CDLL(None).mallopt
    options = {_MMAP_THRESHOLD: _APART, _TRIM_THRESHOLD: _KEPT, _TOP_PAD: _AT_ONCE}
    return all(set_option(option, value) == 1 for option, value in options.items())
