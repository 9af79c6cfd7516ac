"""What carriers of releases share: options of commands, parties by the settings in their folders, training on what arrived.

A party's folder has ``zoo.json``, its own settings, which no message changes. Paths in it are relative to the folder.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from zoo.runtime import checks
from zoo.runtime.run_folder import visible, write_json

SETTINGS, TARGET = "zoo.json", "target"
"""File of a party's own settings, and name of the target."""
INCOMPLETE = 3
"""Exit code if a source gave no release and the target did not train."""
FAILED = b'{"code": "failed"}\n'
"""Reply of a party that failed: its code, as `zoo.runs.exchange.encode` writes it."""
_LOG = logging.getLogger(__name__)


def replying(answer: Callable[[], bytes]) -> bytes:
    """Return a party's answer, or `FAILED`: an engine sends the text of an error, which can show a rating, to the other party.

    The text goes to the local log.

    Examples:
        >>> replying(lambda: b"reply")
        b'reply'
    """
    try:
        return answer()
    except (Exception, SystemExit) as error:  # the latter is of the parser of settings
        _LOG.warning("The party failed: %s: %s", type(error).__name__, error)
        return FAILED


def provision_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that makes the folders of all parties.

    Examples:
        >>> made = argparse.ArgumentParser()
        >>> provision_options(made)
        >>> made.parse_args(["--config", "a.yaml", "--sources", "book"]).epsilon_cap
        8.0
    """
    option = parser.add_argument
    option("--config", type=Path, required=True, help="experiment of all parties")
    option("--sources", nargs="+", required=True, help="domains of the sources")
    option("--epsilon-cap", type=float, default=8.0, help="cap of each budget (default: %(default)s)")
    option("--delta", type=float, default=1e-5, help="delta of each budget (default: %(default)s)")
    option("--relation", default="change_one_rating", help="of each budget")


def target_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that collects releases, and trains on them.

    Examples:
        >>> made = argparse.ArgumentParser()
        >>> target_options(made)
        >>> made.parse_args([]).request
        'first'
    """
    option = parser.add_argument
    option("--request", default="first", help="id of the request; the same id resumes at no cost")
    option("--epsilon", type=_above_0, help="ask for at most this epsilon")
    option("--timeout", type=int, default=300, help="seconds for one message (default: %(default)s)")
    option("--wait", type=float, default=120, help="seconds to wait for silos (default: %(default)s)")
    option("--without", action="store_true", help="train without sources that gave no release")
    option("--no-fit", action="store_true", help="collect only")
    option("--intersect", metavar="SOURCE", help="find the users in common with this source instead of its release")


def _above_0(text: str) -> float:
    try:
        checks.positive(epsilon=(value := float(text)))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return value


def write_settings(file: Path, name: str, options: argparse.Namespace) -> None:
    """Write a party's settings, and next to them its copy of the experiment and a source's budget.

    Args:
        file: File to write; the files next to it are named by the party.
        name: Domain of a source, or ``target``.
        options: Those of `provision_options`.
    """
    shutil.copy(options.config, file.parent / f"{name}.yaml")
    settings: dict[str, Any] = {"config": f"{name}.yaml", "users": None, "mode": "list"}
    if name == TARGET:
        settings |= {"limit": 2**32, "trusted": None, "most_in_common": 0}
    else:
        from zoo.privacy.accounting.relation import Relation
        from zoo.privacy.spending.budget import Budget, Cap

        settings |= {"domain": name, "budget": f"{name}.budget.jsonl", "outbox": f"outbox-{name}", "sign": None}
        cap = Cap(options.epsilon_cap, options.delta, Relation(options.relation))
        Budget.create(file.parent / settings["budget"], cap)
    write_json(file, settings)


class Party:
    """A party behind a carrier, by its own settings file.

    Args:
        file: Its ``zoo.json``.
    """

    def __init__(self, file: Path) -> None:
        self.settings, self.folder = json.loads(file.read_text(encoding="utf-8")), file.resolve().parent

    def _path(self, name: str) -> Path | None:
        return None if self.settings.get(name) is None else self.folder / self.settings[name]

    @cached_property
    def _source(self) -> Any:  # noqa: ANN401  `SourceParty`, whose import takes seconds
        from datamodules import CrossDomainDataModule
        from zoo.commands.privacy.plan import read_settings
        from zoo.runs.exchange import SourceParty
        from zoo.runs.inputs import instantiate, make_publisher

        parsed, domain = read_settings(self.folder / self.settings["config"], []), self.settings["domain"]
        data = instantiate("data", CrossDomainDataModule, parsed.data)
        budget, outbox = self.folder / self.settings["budget"], self.folder / self.settings["outbox"]
        answer = None if self.settings.get("users") is None else self._answer
        return SourceParty(make_publisher(parsed.publisher), data, domain, budget, outbox, self._path("sign"), answer)

    def handle(self, message: bytes) -> bytes:
        """Return a source's reply to a message of the target."""
        reply: bytes = self._source.handle(message)
        return reply

    def _answer(self, step: str, message: bytes) -> bytes:
        """Answer a step of private set intersection, in the mode of this party."""
        from zoo.commands import psi

        agreed = self.folder / f"agreed-{self.settings['domain']}.csv"
        if self.settings["mode"] == "list" and agreed.exists():  # the target must not change a list that is in use
            raise ValueError(f"{agreed} exists. Remove it first.")
        with tempfile.TemporaryDirectory(prefix="zoo-") as scratch:
            received, reply = Path(scratch) / "received", Path(scratch) / "reply"
            received.write_bytes(message)
            first = step == "request"
            psi.serve(self._psi(receive=received, send=reply if first else None, out=None if first else agreed))
            return reply.read_bytes() if step == "request" else b""

    def _psi(self, **files: Path | None) -> argparse.Namespace:
        given = {"users": self._path("users"), "state": self.folder / "psi.json", "mode": self.settings["mode"]}
        most = self.settings.get("most_in_common", 0) if given["mode"] == "list" else math.inf  # a size names no user
        return argparse.Namespace(most_in_common=most, **given, **files)

    def collect(self, sources: Sequence[str], asked: Mapping[str, Any], send: Any, **defaults: int) -> None:  # noqa: ANN401  `exchange.Send`
        """Do as a target what was asked, and write what became of each source next to the releases.

        Args:
            sources: Names of the sources.
            asked: ``request``, ``epsilon`` and ``intersect``, as of `target_options`.
            send: How messages travel.
            defaults: ``part`` and ``patience`` of a `TargetParty` where the settings have none.
        """
        from zoo.release.signature import TrustedKeys
        from zoo.runs.exchange import TargetParty

        keys = self._path("trusted")
        target = TargetParty(
            self.folder / "inbox",
            sources,
            asked["request"],
            epsilon=asked.get("epsilon"),
            trusted=None if keys is None else TrustedKeys.read(keys),
            **{
                **defaults,
                **{
                    name: self.settings[name]
                    for name in ("limit", "part", "patience", "seconds")
                    if self.settings.get(name) is not None
                },
            },
        )
        if source := asked.get("intersect"):
            target.folder.mkdir(parents=True, exist_ok=True)
            code, said = self._intersect(source, asked["request"], send)
            report: dict[str, Any] = {"codes": {source: code}, "text": said}
        else:
            found = target.collect(send)
            report = {"codes": found.codes, "cost": found.cost, "text": str(found)}
        write_json(target.folder / "collected.json", report)

    def _intersect(self, source: str, request: str, send: Any) -> tuple[str, str]:  # noqa: ANN401  `exchange.Send`
        """Ask a source for the users in common, and return its code and a message."""
        from zoo.commands import psi
        from zoo.runs.exchange import SENTENCES, Code, decode, encode, received_code

        out = self.folder / f"agreed-{source}.csv"
        if self.settings.get("users") is None or out.exists():
            return Code.BAD_REQUEST, f"users is not set in {SETTINGS}, or {out} exists. Set it, or remove the file."
        with tempfile.TemporaryDirectory(prefix="zoo-") as scratch:
            request_file, reply, result = (Path(scratch) / name for name in ("request", "reply", "result"))
            psi.ask(self._psi(receive=None, send=request_file, out=None))
            said = f"{source} has no list yet."
            for step, file in (("request", request_file), ("result", result)):
                message = encode({"op": "psi", "request": request, "step": step}, file.read_bytes())
                if (answer := send({source: message}).get(source)) is None:
                    return Code.NO_REPLY, f"{said} {source}: {Code.NO_REPLY}. {SENTENCES[Code.NO_REPLY]}"
                try:
                    fields, content = decode(answer)
                    if (code := received_code(fields)) is not Code.OK:
                        return code, f"{said} {source}: {code}. {SENTENCES[code]}"
                    if step == "request":
                        reply.write_bytes(content)
                        said = psi.ask(self._psi(receive=reply, send=result, out=out)).split(" Send ")[0]
                except OSError:  # of the target's own disk
                    raise
                except Exception as error:  # of a deviating source
                    return Code.REFUSED, f"{said} {source}: {Code.REFUSED}. {visible(str(error)[:500])}"
        return Code.OK, said


def report_of(folder: Path, request: str) -> Path:
    """Return the file with what became of each source, next to the releases.

    Examples:
        >>> report_of(Path("target"), "first").as_posix()
        'target/inbox/first/collected.json'
    """
    return folder / "inbox" / request / "collected.json"


def train(folder: Path, options: argparse.Namespace, sources: Sequence[str], fit: Sequence[str]) -> int:
    """Fit on the releases that arrived; refuse missing ones unless they may be left out. Return the exit code.

    Args:
        folder: Folder of the target's settings.
        options: Those of `target_options`.
        sources: Names of all sources.
        fit: More arguments of ``python -m zoo fit``.
    """
    report = report_of(folder, options.request)
    if not report.is_file():
        print("The run wrote no report. Run the same command again: the request resumes at no cost.", file=sys.stderr)
        return INCOMPLETE
    found = json.loads(report.read_text(encoding="utf-8"))
    print(found["text"])
    if options.intersect:
        return 0 if {*found["codes"].values()} == {"ok"} else INCOMPLETE
    arrived = [source for source in sources if found["codes"].get(source) == "ok"]
    missing = sorted({*sources} - {*arrived})
    if missing and not (options.without and arrived):
        print(
            f"No release of {', '.join(missing)}: nothing was trained. Start these silos and run the same command again, or "
            "pass --without to train without them.",
            file=sys.stderr,
        )
        return INCOMPLETE
    if options.no_fit:
        return 0
    command = [sys.executable, "-m", "zoo", "fit", "--config", str(folder / f"{TARGET}.yaml")]
    command += [f"--data.sources=[{','.join(arrived)}]"] if missing else []
    for source in arrived:
        command += [f"--data.releases.{source}", str(report.parent / source)]
    return subprocess.run([*command, *fit], check=False).returncode
