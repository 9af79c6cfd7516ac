"""Energy: measure the electrical energy of a training by CodeCarbon, offline."""

import importlib.util
import re
from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.utilities import rank_zero_warn


class Energy(Callback):
    """Estimate energy and emissions of a training with CodeCarbon, offline; needs the extra ``energy``.

    ``metrics.json`` of the run gets ``energy_kwh``, ``co2_kg`` and ``energy_country``, and reports show them. CodeCarbon reads the
    power of the whole machine, so other programs count too. Without power counters it takes a constant of the processor's model.

    Reference: Courty et al., *CodeCarbon* (https://codecarbon.io); Lacoste et al., *Quantifying the Carbon Emissions of Machine
    Learning*, 2019, for emissions by the energy mix of a country.

    Args:
        country: ISO 3166-1 alpha-3 code of the country of the machine, such as DEU.

    Raises:
        ModuleNotFoundError: CodeCarbon is not installed.
        ValueError: ``country`` is no such code.

    Examples:
        >>> callbacks = [Energy("DEU")]  # doctest: +SKIP
        >>> # zoo.fit(method, data, callbacks=callbacks)
    """

    def __init__(self, country: str) -> None:
        if not re.fullmatch("[A-Z]{3}", country):
            raise ValueError(f"country is {country!r}. It must be an ISO code of three letters. Set e.g. DEU.")
        if importlib.util.find_spec("codecarbon") is None:
            raise ModuleNotFoundError("CodeCarbon is not installed. pip install 'cdr-zoo[energy]', or remove Energy.")
        self.country = country
        self.facts: dict[str, float | str] = {}
        self._tracker: Any = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start to measure, in the first process of the machine."""
        if trainer.local_rank == 0:
            from codecarbon import OfflineEmissionsTracker  # takes a second

            self._tracker = OfflineEmissionsTracker(
                country_iso_code=self.country, save_to_file=False, log_level="critical", allow_multiple_runs=True
            )
            self._tracker.start()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Store what was measured."""
        if self._tracker is not None:
            if (emitted := self._tracker.stop()) is None:  # CodeCarbon hides its errors
                rank_zero_warn("CodeCarbon measured nothing. The run has no energy.")
            else:
                energy = float(self._tracker.final_emissions_data.energy_consumed)
                self.facts = {"energy_kwh": energy, "co2_kg": float(emitted), "energy_country": self.country}
            self._tracker = None

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Stop to measure."""
        if self._tracker is not None:
            self._tracker.stop()
            self._tracker = None
