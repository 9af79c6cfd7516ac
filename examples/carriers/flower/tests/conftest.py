"""The reason to skip the tests where Flower is not installed."""

import pytest

pytest.importorskip("flwr", reason="not installed: pip install -e examples/carriers/flower")
