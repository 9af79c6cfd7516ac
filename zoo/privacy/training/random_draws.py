"""Random numbers of a private step's losses: from a seed of their own, and repeatable for some of the users."""

import contextlib
import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_DROPOUT = torch.ops.aten.native_dropout.default  # of accelerators; returns the result and its mask
_Found = list[tuple[Any, Tensor | None]]


class UnknownDrawError(Exception):
    """A random draw has not one row for each user, so it cannot be repeated for some of them."""


class RandomDraws:
    """Torch's random numbers within a block, from their own seed; the global random state is neither read nor changed.

    With a known seed the numbers would show which users' places in the sample another user shifts, and the state afterwards
    would show its size. A CPU's own seeding uses 32 bits, few enough to try them all, so its whole state is filled.

    Args:
        seed: The seed, below 2^128; accelerators use 64 bits of it.
        device: Device of the module.

    Examples:
        >>> draws = RandomDraws(0, torch.device("cpu"))
        >>> with draws.once():
        ...     first = torch.rand(4)
        >>> with draws.again():
        ...     assert torch.equal(torch.rand(4), first)
        >>> with draws.again(torch.tensor([2, 0]), 4):
        ...     assert torch.equal(torch.rand(2), first[[2, 0]])
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        self._seed, self._drew = seed, False
        self._generators = [torch.default_generator]
        if device.type == "cuda":
            self._generators.append(torch.cuda.default_generators[device.index])
        self._found: _Found = []

    @contextlib.contextmanager
    def once(self) -> Iterator[None]:
        """Draw from the seed."""
        before = [each.get_state() for each in self._generators]
        fresh = [seed_whole_state(each, self._seed) for each in self._generators]
        try:
            yield
        finally:
            after = [each.get_state() for each in self._generators]
            self._drew |= not all(map(torch.equal, fresh, after))
            for each, state in zip(self._generators, before, strict=True):
                each.set_state(state)

    @contextlib.contextmanager
    def again(self, places: Tensor | None = None, count: int = 0) -> Iterator[None]:
        """Draw the same numbers again for all users, or after that for the users at some places of all ``count``.

        Raises:
            UnknownDrawError: If a draw for all users has not one row for each of them.
        """
        with self.once(), contextlib.nullcontext() if not self._drew else _Draws(self._found, places, count):
            yield


def seed_whole_state(generator: torch.Generator, seed: int) -> Tensor:
    """Seed a generator with all bits of a seed below 2^128 (accelerators: 64), and return its state."""
    state = generator.manual_seed(seed % 2**64).get_state()
    if generator.device.type == "cpu":  # Mersenne Twister: 624 words of 32 bits behind seed, flags and position
        words = hashlib.shake_256(seed.to_bytes(16, "little")).digest(4 * 624)
        state.numpy().view(np.uint64)[3 : 3 + 624] = np.frombuffer(words, dtype=np.uint32)
        generator.set_state(state)
    return state


class _Draws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Record all random draws; or with places repeat those that were found."""

    def __init__(self, found: _Found, places: Tensor | None, count: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found, self.places, self.count, self.next = found, places, count, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401  torch's own
        result = func(*args, **(kwargs or {}))
        if torch.Tag.nondeterministic_seeded not in func.tags or (kwargs or {}).get("generator") is not None:
            return result  # a generator of the module's own repeats its numbers by place
        drawn = result[1] if func is _DROPOUT else result
        if self.places is None:
            self.found.append((func, drawn.clone() if isinstance(drawn, Tensor) else None))
            return result
        drawn.copy_(self._repeated(func, drawn, self.places))  # also where the draw was in place
        return (args[0] * drawn / (1 - args[1]), drawn) if func is _DROPOUT else result

    def _repeated(self, func: Any, drawn: Any, places: Tensor) -> Tensor:  # noqa: ANN401  torch's own
        before, found = self.found[self.next] if self.next < len(self.found) else (None, None)
        self.next += 1
        if func is not before or found is None or found.ndim != drawn.ndim:
            raise UnknownDrawError
        other = [axis for axis, size in enumerate(drawn.shape) if found.shape[axis] != size]
        if not other:
            return found  # for all users together
        if len(other) > 1 or (found.shape[other[0]], drawn.shape[other[0]]) != (self.count, len(places)):
            raise UnknownDrawError
        return found.index_select(other[0], places)
