"""Freed memory: what a step frees the next one has without asking the system, and whoever trains or scores sees to it."""

import platform
import subprocess
import sys

import pytest

from tests.samples import binary
from zoo import BPR, EmbeddingPublisher
from zoo.publishers import trained
from zoo.publishers.trained import SourceRatings
from zoo.runtime import malloc_tuning

STEPS = 20
# As a step does it: activations of 16 MiB in all, asked for one by one, and freed together. In glibc's own way it has found, by
# the first that was freed, that blocks of 2 MiB come from the heap, and that 4 MiB at its end are too many.
STEP = f"""
import ctypes, resource
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
def step():
    blocks = [libc.malloc(2 << 20) for _ in range(8)]
    for block in blocks:
        ctypes.memset(block, 1, 2 << 20)
    for block in reversed(blocks):
        libc.free(block)
step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({STEPS}):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
ASK = "from zoo.runtime.malloc_tuning import keep_freed_memory\nassert keep_freed_memory()\n"

with_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator is not glibc's")


def page_faults(script: str) -> int:
    return int(subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout)


@with_glibc
def test_a_step_finds_its_pages_where_the_last_one_left_them() -> None:
    """A count of the system's, of a process that does the same each time: 512 or 4,096 pages a step, or next to none."""
    assert page_faults(STEP) > 1000 * STEPS, "otherwise there is nothing to be kept"
    assert page_faults(ASK + STEP) < 100 * STEPS


def test_another_allocator_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def called(name: object) -> None:
        raise AssertionError(f"{name} was opened")

    monkeypatch.setattr(malloc_tuning.platform, "libc_ver", lambda: ("", ""))
    monkeypatch.setattr(malloc_tuning.ctypes, "CDLL", called)
    assert not malloc_tuning.keep_freed_memory.__wrapped__()


def test_who_trains_or_scores_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("zoo.methods.base.keep_freed_memory", lambda: asked.append("method"))
    monkeypatch.setattr(trained, "keep_freed_memory", lambda: asked.append("publisher"))
    EmbeddingPublisher(network=BPR(num_factors=2)).trained(SourceRatings(binary(), batch_size=8))
    assert asked == ["publisher", "method"]
