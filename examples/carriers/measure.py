"""Bytes and seconds of a request in one process: ``python examples/carriers/measure.py 1 4 15``."""

import sys
import tempfile
import time
from pathlib import Path

from datamodules import Synthetic
from zoo import NoisyRows
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.spending.budget import Budget, Cap
from zoo.runs.exchange import SourceParty, TargetParty


def measure(silos: int) -> str:
    """Return the row of a table: silos, messages and CPU seconds of publishing and reading, bytes, folder bytes."""
    folder, names = Path(tempfile.mkdtemp()), [f"s{number:02d}" for number in range(silos)]
    data, parties = Synthetic(sources=names, num_users=400, num_items=150), {}
    for name in names:
        budget = Budget.create(folder / f"{name}.jsonl", Cap(8.0, 1e-5, Relation.CHANGE_ONE_RATING)).path
        parties[name] = SourceParty(NoisyRows(epsilon=8.0), data, name, budget, folder / "outbox" / name)
    begin = time.process_time()
    found = TargetParty(folder / "inbox", names, "first").collect(
        lambda messages: {name: parties[name].handle(message) for name, message in messages.items()}
    )
    seconds = time.process_time() - begin
    crossed = [sum(found.cost[stage][1:]) for stage in ("publish", "read")]
    size = sum(file.stat().st_size for path in found.releases.values() for file in path.iterdir())
    return f"| {silos} | {crossed[0]:,.0f} | {crossed[1]:,.0f} | {size:,} | {seconds:.1f} |"


if __name__ == "__main__":
    print(*(measure(int(number)) for number in sys.argv[1:]), sep="\n")
