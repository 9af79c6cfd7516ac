"""Bytes and seconds of a request: ``python examples/carriers/measure.py [one-place|simulation|nvflare|flower] 1 4 15``.

One place: all parties in this process. The other forms run in the environment of their carrier: NVFlare's simulator, and real
processes over NVFlare or Flower. These are forked from one that made the imports, so that 16 parties fit into one machine.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from faults import end_group, free_port
from prestart import Prestart

from datamodules import Synthetic
from zoo import NoisyRows
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.spending.budget import Budget, Cap
from zoo.runs.exchange import SourceParty, TargetParty


def in_one_place(folder: Path, names: list[str]) -> tuple[dict[str, list[float]], Path]:
    """Return the cost of each stage, and the folder of the releases."""
    data, parties = Synthetic(sources=names, num_users=400, num_items=150), {}
    for name in names:
        budget = Budget.create(folder / f"{name}.jsonl", Cap(8.0, 1e-5, Relation.CHANGE_ONE_RATING)).path
        parties[name] = SourceParty(NoisyRows(epsilon=8.0), data, name, budget, folder / "outbox" / name)
    found = TargetParty(folder / "inbox", names, "first").collect(
        lambda messages: {name: parties[name].handle(message) for name, message in messages.items()}
    )
    return found.cost, folder / "inbox" / "first"


def over_carrier(folder: Path, names: list[str], form: str) -> tuple[dict[str, list[float]], Path]:
    """Return the cost of each stage, and the folder of the releases."""
    text = (Path(__file__).parent / "experiment.yaml").read_text().replace("[book, film]", f"[{', '.join(names)}]")
    (folder / "experiment.yaml").write_text(text)
    package, party, port = "zoo_flower" if form == "flower" else "zoo_nvflare", folder / "federation", str(free_port())
    given = [str(party), "--config", str(folder / "experiment.yaml"), "--sources", *names]
    silos = list[subprocess.Popen[bytes]]()
    command = [sys.executable, "-m", package]
    try:
        if form == "simulation":
            subprocess.run([*command, "simulate", *given, "--no-fit"], check=True)
            inbox = party / "inbox" / "first"
        else:
            there = ["--port", port]
            subprocess.run([*command, "provision", *given, *(there if form == "nvflare" else [])], check=True)
            there = there if form == "flower" else []
            for name in names:
                own = ["--runtime-port", str(free_port())] if form == "flower" else []
                with open(party / f"{name}.log", "wb") as log:
                    started = [*command, "silo", str(party / name), *there, *own]
                    silos.append(subprocess.Popen(started, stdout=log, stderr=log, start_new_session=True))
            asked = ["target", str(party / "target"), "--wait", "900", "--no-fit", *there]
            subprocess.run([*command, *asked], check=True)
            inbox = party / "target" / ("." if form == "flower" else "local") / "inbox" / "first"
    finally:
        for silo in silos:
            end_group(silo)
    return json.loads((inbox / "collected.json").read_text())["cost"], inbox


def measure(form: str, silos: int) -> str:
    """Return the row of a table: silos, bytes of asking, of reading and of the folders, seconds of each stage and of all."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        folder, names, begin = Path(place), [f"s{number:02d}" for number in range(silos)], time.monotonic()
        cost, inbox = in_one_place(folder, names) if form == "one-place" else over_carrier(folder, names, form)
        size = sum(file.stat().st_size for name in names for file in (inbox / name).iterdir())
        crossed = [f"{sum(cost[stage][1:]):,.0f}" for stage in ("publish", "read")]
        seconds = [f"{spent:.1f}" for spent in (cost["publish"][0], cost["read"][0], time.monotonic() - begin)]
    return " | ".join(["", form, str(silos), *crossed, f"{size:,}", *seconds, f"{os.getloadavg()[0]:.0f}", ""]).strip()


if __name__ == "__main__":
    forms = [word for word in sys.argv[1:] if not word.isdigit()] or ["one-place"]
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    for form in forms:
        with ExitStack() as stack:
            if form != "one-place":
                package = "zoo_flower" if form == "flower" else "zoo_nvflare"
                place = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
                sys.executable = stack.enter_context(Prestart(package, place / "prestarted"))
            for number in numbers:
                print(measure(form, number), flush=True)
