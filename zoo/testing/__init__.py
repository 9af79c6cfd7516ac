"""Testing: what methods, publishers, datamodules and callbacks of any package must do, as tests; and tiny data. Needs pytest."""

import pytest

for _contract in ("methods", "publishers", "datamodules", "callbacks"):
    pytest.register_assert_rewrite(f"zoo.testing.{_contract}")

from zoo.testing.callbacks import CallbackContract as CallbackContract  # noqa: E402  asserts are rewritten before
from zoo.testing.datamodules import DatamoduleContract as DatamoduleContract  # noqa: E402
from zoo.testing.methods import MethodContract as MethodContract  # noqa: E402
from zoo.testing.publishers import PublisherContract as PublisherContract  # noqa: E402

__all__ = ["CallbackContract", "DatamoduleContract", "MethodContract", "PublisherContract"]
