"""NeuMF: its loss and scores by hand, what pre-training hands over and when, and a pattern that it must learn."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import Trainer, seed_everything

from datamodules import Evaluation, Synthetic
from tests.zoo.methods.quiet_trainer import quiet
from tests.zoo.methods.single_domain import fitted, learned, popular
from zoo import BPR, NeuMF
from zoo.data.batch_types import PairBatch
from zoo.data.training_batches import TrainingExamples
from zoo.methods.target_data import ReleaseMismatchError

pytestmark = pytest.mark.thorough

SMALL: dict[str, Any] = {"gmf_dim": 3, "mlp_dims": (8, 6, 4)}
SIZES: dict[str, Any] = {"num_users": 40, "num_items": 30, "ratings_per_user": 8, "batch_size": 16, "seed": 1}
PAIRS = PairBatch(torch.tensor([1, 2, 3]), torch.tensor([7, 7, 0]), torch.tensor([1.0, 0.0, 1.0]))


def run(
    method: NeuMF | BPR,
    folder: Path,
    epochs: int = 1,
    ckpt_path: Path | None = None,
    **data: Any,  # noqa: ANN401
) -> Path:
    """Train, and keep a checkpoint."""
    trainer = quiet(max_epochs=epochs, default_root_dir=folder)
    trainer.fit(method, datamodule=Synthetic(**(SIZES | data)), ckpt_path=ckpt_path)
    trainer.save_checkpoint(folder / "run.ckpt")
    return folder / "run.ckpt"


@pytest.fixture
def parts(tmp_path: Path) -> dict[str, Any]:
    """Checkpoints of both parts."""
    seed_everything(0)
    paths: dict[str, Any] = {}
    for part in ("gmf", "mlp"):
        (tmp_path / part).mkdir()
        paths[f"pretrained_{part}"] = run(NeuMF(parts=part, lr=1e-2, **SMALL), tmp_path / part)  # type: ignore[arg-type]
    return paths


def state(path: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = torch.load(path, weights_only=True)["state_dict"]
    return found


@pytest.mark.parametrize("which", ["both", "gmf", "mlp"])
def test_the_loss_is_the_mean_cross_entropy_of_what_is_ranked(which: Any) -> None:  # noqa: ANN401
    method, _ = fitted(NeuMF(parts=which, **SMALL), 0)
    logits = method.score_all(PAIRS.users).gather(1, PAIRS.items[:, None]).squeeze(1).tolist()
    said = [1 / (1 + math.exp(-logit)) for logit in logits]
    expected = -(math.log(said[0]) + math.log(1 - said[1]) + math.log(said[2])) / 3
    assert method.step(PAIRS)["loss"].item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("which", "width"), [("both", 7), ("gmf", 3), ("mlp", 4)])
def test_a_score_is_the_head_on_the_features_of_its_parts(which: Any, width: int) -> None:  # noqa: ANN401
    method, _ = fitted(NeuMF(parts=which, **SMALL), 0)
    users, items = torch.tensor([4, 9]), torch.tensor([[3, 0], [59, 3]])
    features = []
    if which != "mlp":
        features.append(method.gmf.users.weight[users][:, None] * method.gmf.items.weight[items])
    if which != "gmf":
        features.append(method.mlp(users[:, None], items))
    expected = torch.cat(features, dim=-1) @ method.head.weight[0] + method.head.bias
    assert method.head.weight.shape == (1, width)
    assert float(method.head.weight.detach().abs().max()) <= math.sqrt(3 / width)
    assert torch.allclose(method.score(users, items), expected, atol=1e-6)
    every = method.score_all(torch.arange(40))  # more than one chunk of users
    assert torch.allclose(every[users].gather(1, items), expected, atol=1e-6)


def test_logits_that_a_sigmoid_could_not_tell_apart_are_ranked() -> None:
    method, _ = fitted(NeuMF(parts="gmf", gmf_dim=1), 0)
    with torch.no_grad():
        method.head.weight.fill_(1.0)
        method.gmf.users.weight.fill_(1.0)
        method.gmf.items.weight.copy_(30 + torch.arange(60.0)[:, None])
    scores = method.score_all(torch.tensor([0]))
    assert len(scores.unique()) == 60
    assert len(torch.sigmoid(scores).unique()) == 1


def test_four_negatives_for_each_pair_never_a_positive_and_others_each_epoch() -> None:
    method, trainer = fitted(NeuMF(**SMALL), 0)
    batches = trainer.datamodule.train_dataloader()  # type: ignore[attr-defined]
    dense = method.target_rows.dense(torch.arange(120))
    pairs = []
    for epoch in (0, 1):
        batches.epoch = lambda epoch=epoch: epoch
        made = list(batches)
        users, items, labels = (torch.cat([getattr(b, name) for b in made]) for name in ("users", "items", "labels"))
        assert int((labels == 0).sum()) == 4 * int(labels.sum()) == 4 * int(dense.sum())
        assert torch.equal(dense[users, items], labels)
        pairs.append({(int(u), int(i)) for u, i in zip(users[labels == 0], items[labels == 0], strict=True)})
    assert pairs[0] != pairs[1]
    assert TrainingExamples(trainer.datamodule.train, 2).num_negatives == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("alpha", [0.5, 0.2])
def test_pretraining_hands_over_tables_layers_and_weighted_heads(
    parts: dict[str, Any], alpha: float, tmp_path: Path
) -> None:
    method = NeuMF(**SMALL, **parts, pretrained_weight=alpha, lr=1e-30, optimizer="sgd")
    started = state(run(method, tmp_path))
    gmf, mlp = state(parts["pretrained_gmf"]), state(parts["pretrained_mlp"])
    for name, values in started.items():
        if name.startswith(("gmf.", "mlp.")):
            assert torch.equal(values, (gmf | mlp)[name]), name
    heads = torch.cat([alpha * gmf["head.weight"], (1 - alpha) * mlp["head.weight"]], dim=1)
    assert torch.allclose(started["head.weight"], heads)
    assert torch.allclose(started["head.bias"], alpha * gmf["head.bias"] + (1 - alpha) * mlp["head.bias"])
    users = torch.arange(40)
    logits = {}
    for part in ("gmf", "mlp"):
        loaded = NeuMF.load_from_checkpoint(parts[f"pretrained_{part}"], weights_only=True)
        logits[part] = loaded.score_all(users)
    expected = alpha * logits["gmf"] + (1 - alpha) * logits["mlp"]
    assert torch.allclose(method.score_all(users), expected, atol=1e-5)


def test_the_files_are_read_when_training_starts_and_never_again(parts: dict[str, Any], tmp_path: Path) -> None:
    settings = {**SMALL, **parts, "lr": 1e-2}
    for name in ("whole", "halted", "resumed"):
        (tmp_path / name).mkdir()
    seed_everything(3)
    whole = run(NeuMF(**settings), tmp_path / "whole", epochs=2)
    seed_everything(3)
    halted = run(NeuMF(**settings), tmp_path / "halted", epochs=1)
    for path in parts.values():
        path.unlink()
    resumed = run(NeuMF(**settings), tmp_path / "resumed", epochs=2, ckpt_path=halted)
    assert all(torch.equal(values, state(resumed)[name]) for name, values in state(whole).items())
    loaded = NeuMF.load_from_checkpoint(resumed, weights_only=True)
    assert torch.equal(loaded.head.weight, state(resumed)["head.weight"])
    # Trained further, it is not pre-trained again either.
    run(loaded, tmp_path / "halted")
    method = NeuMF(**settings)
    Trainer(accelerator="cpu", logger=False, enable_progress_bar=False).test(
        method, datamodule=Synthetic(**SIZES), ckpt_path=resumed, verbose=False
    )
    assert torch.equal(method.head.weight, state(resumed)["head.weight"])


def test_pretrained_parts_that_do_not_fit_are_refused(parts: dict[str, Any], tmp_path: Path) -> None:
    gmf, mlp = parts["pretrained_gmf"], parts["pretrained_mlp"]
    with pytest.raises(FileNotFoundError, match=r"No checkpoint at pretrained_gmf .*none\.ckpt\. Fit parts"):
        run(NeuMF(**SMALL, pretrained_gmf=tmp_path / "none.ckpt", pretrained_mlp=mlp), tmp_path)
    (tmp_path / "half.ckpt").write_bytes(Path(gmf).read_bytes()[:-500])
    with pytest.raises(ValueError, match=r"half\.ckpt is no checkpoint, or is damaged \(BadZipFile\)\."):
        run(NeuMF(**SMALL, pretrained_gmf=tmp_path / "half.ckpt", pretrained_mlp=mlp), tmp_path)
    torch.save([1], tmp_path / "list.ckpt")
    with pytest.raises(ValueError, match=r"pretrained_gmf holds \[\]; .* not .*list\.ckpt"):
        run(NeuMF(**SMALL, pretrained_gmf=tmp_path / "list.ckpt", pretrained_mlp=mlp), tmp_path)
    with pytest.raises(ValueError, match=r"pretrained_gmf holds .* Pass a NeuMF with parts: gmf"):
        run(NeuMF(**SMALL, pretrained_gmf=mlp, pretrained_mlp=mlp), tmp_path)
    other = run(BPR(num_factors=3), tmp_path)
    with pytest.raises(ValueError, match=r"pretrained_mlp holds \['factors\.items\.weight'"):
        run(NeuMF(**SMALL, pretrained_gmf=gmf, pretrained_mlp=other), tmp_path)
    with pytest.raises(ValueError, match=r"pretrained_gmf .*: .*'gmf\.users\.weight': \(40, 3\).*Use one gmf_dim"):
        run(NeuMF(gmf_dim=5, mlp_dims=SMALL["mlp_dims"], **parts), tmp_path)
    with pytest.raises(ReleaseMismatchError, match="was trained on other data, or on another split"):
        run(NeuMF(**SMALL, **parts), tmp_path, evaluation=Evaluation(split="random2"))
    with pytest.raises(ReleaseMismatchError, match="was trained on other data"):
        run(NeuMF(**SMALL, **parts), tmp_path, num_items=35)


def test_each_optimiser_is_what_it_says() -> None:
    for name, kind in (("adam", torch.optim.Adam), ("sgd", torch.optim.SGD)):
        method, trainer = fitted(NeuMF(**SMALL, optimizer=name), 0)  # type: ignore[arg-type]
        assert isinstance(method.configure_optimizers(), kind)
        assert trainer.current_epoch == 0


OF_PART = {"both": {"lr": 1e-2}, "gmf": {"lr": 1e-2, "gmf_dim": 16}, "mlp": {"lr": 5e-3, "mlp_dims": (64, 64, 32)}}


@pytest.mark.parametrize(("which", "epochs"), [("both", 30), ("gmf", 30), ("mlp", 40)])
@pytest.mark.slow
def test_planted_tastes_are_learned(which: Any, epochs: int) -> None:  # noqa: ANN401
    settings: dict[str, Any] = OF_PART[which]
    _, trainer = fitted(NeuMF(parts=which, **settings), epochs, batch_size=256)
    assert learned(trainer) > 1.2 * popular()
