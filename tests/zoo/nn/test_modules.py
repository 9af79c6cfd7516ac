"""Modules by name: any text is a key, and ordinary names are stored as they were."""

import pytest
import torch
from torch import nn

from zoo.nn.modules import ModulesOf

NAMES = ["books", "books.v2", "items", "train", "type", "values", "", "%", "%items", "%25", "a%2Eb", "a.b", "a b"]
NAMES.append("_modules")


def test_any_name_is_a_key_and_survives_a_checkpoint() -> None:
    made = ModulesOf({name: nn.Linear(1, 1) for name in NAMES})
    assert list(made) == list(made.keys()) == [name for name, _ in made.items()] == NAMES
    assert len({made.stored(name) for name in NAMES}) == len(NAMES) == len(made) == len(made.values())
    assert all(made[name] is module for name, module in made.items())
    other = ModulesOf({name: nn.Linear(1, 1) for name in NAMES})
    other.load_state_dict(made.state_dict())
    assert all(torch.equal(other[name].weight, made[name].weight) for name in NAMES)
    assert "books.weight" in made.state_dict(), "checkpoints of earlier versions fit"
    del made["books.v2"]
    assert "books.v2" not in made
    assert "%items" in made
    with pytest.raises(KeyError):
        made["books.v2"]
