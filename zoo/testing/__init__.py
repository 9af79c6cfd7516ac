"""Testing: contract tests for methods, publishers, datamodules and callbacks of any package, and tiny data. Needs pytest."""

import pytest

pytest.register_assert_rewrite("zoo.testing.methods", "zoo.testing.contracts")

from zoo.testing.contracts import CallbackContract, DatamoduleContract, PublisherContract  # noqa: E402  asserts are rewritten
from zoo.testing.methods import MethodContract  # noqa: E402

__all__ = ["CallbackContract", "DatamoduleContract", "MethodContract", "PublisherContract"]
