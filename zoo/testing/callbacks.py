"""What every callback must do, for the tests of whoever writes one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import Callback

import zoo
from datamodules import Synthetic
from zoo.methods.base import Recommender
from zoo.testing.tiny import SYNTHETIC, data_for, publisher_for, trainer


class CallbackContract:
    """Tests of a callback: subclass it in a test module, and say how the callback is made, and of which method it is.

    ```python
    class TestMine(CallbackContract):
        def make(self) -> Callback:
            return Mine()
    ```
    """

    def make(self) -> Callback:
        """The callback."""
        raise NotImplementedError(f"{type(self).__name__} must say how its callback is made: def make(self).")

    def method(self) -> Recommender:
        """The method that is trained with it."""
        return zoo.BPR(num_factors=4)

    def trained(self, folder: Path, **settings: Any) -> Trainer:  # noqa: ANN401  of a fit
        """The trainer after two epochs with the callback."""
        method = self.method()
        release = publisher_for(method.reads).publish(Synthetic(**SYNTHETIC).source("book"), "book")
        data = data_for(method, release.save(folder / "book"))
        run = trainer(folder, self.make(), epochs=2)
        run.fit(method, datamodule=data, **settings)
        return run

    @pytest.fixture
    def run(self, tmp_path: Path) -> Trainer:
        """The trainer after two epochs with the callback."""
        return self.trained(tmp_path)

    def test_a_training_ends_with_it(self, run: Trainer) -> None:
        """With finite figures, after all of its epochs or fewer."""
        assert 0 < run.current_epoch <= 2
        assert 0 <= float(run.callback_metrics["val/ndcg@10"]) <= 1

    def test_a_checkpoint_with_it_is_tensors_and_plain_values(self, run: Trainer, tmp_path: Path) -> None:
        """Whatever it keeps is read without running code, and its settings are those it is made with."""
        kept = torch.load(tmp_path / "last.ckpt", weights_only=True)
        assert isinstance(kept["callbacks"], Mapping)

    def test_a_training_goes_on_with_it(self, run: Trainer, tmp_path: Path) -> None:
        """From a checkpoint, whose state it takes up."""
        resumed = self.trained(tmp_path / "resumed", ckpt_path=tmp_path / "last.ckpt", weights_only=True)
        assert resumed.current_epoch == run.current_epoch
