"""The quickstart experiment, made tiny."""

from pathlib import Path

CONFIG = Path(__file__).parent.parent / "configs" / "pricdr" / "quickstart.yaml"
TINY = (
    *("--config", str(CONFIG), "--model.dims", "[8, 4]", "--trainer.max_epochs", "2"),
    *("--data.num_users", "24", "--data.num_items", "30", "--data.ratings_per_user", "6"),
)
PROJECTED = (*TINY, "--publisher.num_components", "8")
