"""The quickstart experiment, made tiny."""

from pathlib import Path

from tests.tiny import arguments

CONFIG = Path(__file__).parent.parent / "configs" / "pricdr" / "quickstart.yaml"
MODEL, DATA = arguments("model", "PriCDR"), arguments("data", "Synthetic")
TINY = ("--config", str(CONFIG), *MODEL, *DATA, "--trainer.max_epochs", "2")
PROJECTED = (*TINY, *arguments("publisher", "JLT"))
