"""The example of tables in parts: two processes with half of the rows each learn what one does with all of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
import torch
from pytorch_lightning import LightningModule, Trainer, seed_everything
from pytorch_lightning.callbacks import Callback

from datamodules import Synthetic
from zoo import BPR

ROOT = Path(__file__).parent.parent
DATA = {"num_users": 41, "num_items": 30, "ratings_per_user": 8, "seed": 1, "batch_size": 60}

#: What both processes do: a training, one that goes on from its first epoch, and the test.
SCRIPT = f"""
import sys
from pathlib import Path

import torch
from pytorch_lightning import Trainer, seed_everything
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.loggers import CSVLogger
from pytorch_lightning.loggers.logger import DummyLogger
from pytorch_lightning.strategies import ModelParallelStrategy

from callbacks import CaseWriter, Trackers
from datamodules import Synthetic
from sharded_tables import ShardedBPR

out = Path(sys.argv[1])

class Start(Callback):
    def on_train_start(self, trainer, method):
        # No checkpoint: torch makes Adam's state for one, which counts as a step.
        start = {{name: values.full_tensor() for name, values in method.state_dict().items()}}
        if trainer.is_global_zero:
            torch.save(start, out / "start.pt")
        assert method.factors.users.weight.to_local().shape == ((21, 20)[trainer.global_rank], 4)

def fitted(name, epochs, ckpt=None):
    seed_everything(0)
    trainer = Trainer(
        max_epochs=epochs, accelerator="cpu", devices=2, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[CaseWriter(), *([Start(), Trackers(recommendations=3)] if name == "whole" else [])],
        logger=[CSVLogger(out, name="", version=name), DummyLogger()],  # who is told more than figures
        strategy=ModelParallelStrategy(data_parallel_size=1, tensor_parallel_size=2, save_distributed_checkpoint=False),
    )
    method, data = ShardedBPR(num_factors=4, lr=0.01), Synthetic(**{DATA!r})
    trainer.fit(method, datamodule=data, ckpt_path=ckpt, weights_only=True)
    trainer.save_checkpoint(out / f"{{name}}.ckpt")
    return trainer, method, data

trainer, method, data = fitted("whole", 3)
(out / "whole" / "metrics.json").write_text("{{}}")  # of a whole run
trainer.test(method, datamodule=data, verbose=False)
torch.save({{key: float(value) for key, value in trainer.callback_metrics.items()}}, out / f"figures_{{trainer.global_rank}}.pt")
fitted("half", 1)
fitted("resumed", 3, out / "half.ckpt")
"""


class Begin(Callback):
    """Begins with given weights."""

    def __init__(self, weights: dict[str, torch.Tensor]) -> None:
        self.weights = weights

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        pl_module.load_state_dict(self.weights)


@pytest.mark.slow
@pytest.mark.processes
def test_two_with_half_of_the_rows_each_learn_what_one_does(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py", str(tmp_path)], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'examples'}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    start = torch.load(tmp_path / "start.pt")
    whole, resumed = (
        torch.load(tmp_path / f"{name}.ckpt", weights_only=True)["state_dict"] for name in ("whole", "resumed")
    )
    seed_everything(0)
    method, data = BPR(num_factors=4, lr=0.01), Synthetic(**DATA)
    alone = Trainer(
        max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[Begin(start)],
    )  # fmt: skip
    alone.fit(method, datamodule=data)
    for name, values in method.state_dict().items():
        assert not torch.allclose(values, start[name], atol=1e-3), "something was learned"
        assert torch.allclose(values, whole[name], atol=1e-6), name
        assert torch.equal(whole[name], resumed[name]), name
    alone.test(method, datamodule=data, verbose=False)
    for rank in range(2):
        figures = torch.load(tmp_path / f"figures_{rank}.pt")
        ours = {key: float(value) for key, value in alone.callback_metrics.items() if key.startswith("test/")}
        assert {key: figures[key] for key in ours} == pytest.approx(ours, abs=1e-6)
    cases = pl.read_parquet(tmp_path / "whole" / "test_cases.parquet")
    assert len(cases) == len(cases.unique(["user_id", "item_id"])) == 41, "each case once"
