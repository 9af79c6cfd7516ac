"""Energy of a training: what is measured, where it is written and shown, and what is refused."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

import zoo
from callbacks import Energy
from datamodules import Synthetic
from zoo.benchmark.report.command import main


def trained(folder: Path, energy: Energy) -> Path:
    data = Synthetic(num_users=60, num_items=40)
    run = zoo.fit(zoo.Popularity(), data, runs=folder, callbacks=[energy], accelerator="cpu", enable_progress_bar=False)
    run.test()
    return run.folder


def test_a_run_and_its_report_state_what_codecarbon_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tracker = Mock(stop=Mock(return_value=0.05), final_emissions_data=SimpleNamespace(energy_consumed=0.125))
    made = Mock(OfflineEmissionsTracker=Mock(return_value=tracker))
    monkeypatch.setitem(sys.modules, "codecarbon", made)
    with monkeypatch.context() as patch:
        patch.setattr("importlib.util.find_spec", lambda name: name)
        energy = Energy("DEU")
    monkeypatch.setattr("zoo.benchmark.report.page._probed", str)  # in a process of its own
    run = trained(tmp_path / "runs", energy)
    assert made.OfflineEmissionsTracker.call_args.kwargs["country_iso_code"] == "DEU"
    tracker.start.assert_called_once_with()
    tracker.stop.assert_called_once_with()
    facts = json.loads((run / "metrics.json").read_text())
    assert (facts["energy_kwh"], facts["co2_kg"], facts["energy_country"]) == (0.125, 0.05, "DEU")
    main([str(run), "--out", str(tmp_path / "report")])
    page = (tmp_path / "report" / "README.md").read_text()
    assert "| hours | kWh | seeds |" in page
    assert "| 0.125 | 1 |" in page
    assert "energy_kwh" in (tmp_path / "report" / "results.csv").read_text().splitlines()[0]
    tracker.stop.return_value, energy.facts = None, {}  # what it returns after an error of its own
    with pytest.warns(UserWarning, match="CodeCarbon measured nothing"):
        assert "energy_kwh" not in json.loads((trained(tmp_path / "silent", energy) / "metrics.json").read_text())


def test_codecarbon_itself_measures_offline(tmp_path: Path) -> None:
    pytest.importorskip("codecarbon", reason="CodeCarbon is an extra: pip install 'cdr-zoo[energy]'")
    facts = json.loads((trained(tmp_path, Energy("DEU")) / "metrics.json").read_text())
    assert 0 < facts["energy_kwh"] < 1
    assert 0 < facts["co2_kg"] < facts["energy_kwh"], "German electricity emits less than 1 kg per kWh"


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="country is 'Germany'"):
        Energy("Germany")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'cdr-zoo\[energy\]'"):
        Energy("DEU")
