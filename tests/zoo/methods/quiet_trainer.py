"""A trainer on the CPU that writes and shows nothing."""

from typing import Any

from pytorch_lightning import Trainer


def quiet(**settings: Any) -> Trainer:  # noqa: ANN401
    own = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    return Trainer(**{"accelerator": "cpu"} | own | settings)
