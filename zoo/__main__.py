"""``python -m zoo``: answers without heavy imports what it can, then runs the command."""

import os
import re
import sys
from collections.abc import Callable, Sequence

from zoo.commands.cached_help import requested_help
from zoo.commands.listing import KINDS, listing
from zoo.runtime import builtin_configs
from zoo.runtime.exports import VERSION
from zoo.runtime.settings_files import SettingsFileError, with_home
from zoo.runtime.suggestions import suggest

#: Exit code if the reader of the output closes it: 128 and the number of SIGPIPE, as in a shell.
PIPE_CLOSED = 141

HELP = """usage: python -m zoo COMMAND [options]

Privacy-preserving cross-domain recommendation: a source party publishes once, a target party trains on the release.

commands:
  fit        publish missing releases if possible, train at the target, and test the best checkpoint
  validate   compute validation metrics of a checkpoint
  test       compute test metrics of a checkpoint
  predict    write recommendations of a checkpoint as Parquet
  publish    write the release of a source party
  recommend  show the best items for some users, from a run or a bundle
  similar    show the most similar items or users, from a run or a bundle
  vectors    write the vectors of users and items, of a method that has some
  serve      answer requests for recommendations over HTTP, from a run or a bundle
  export     write a run as a bundle to hand over: weights, item ids, metrics, privacy record, model card
  benchmark  run a grid of experiments, in parallel, resumable
  report     write tables, tests and figures of a benchmark
  privacy    plan, show and add up privacy losses; keep a budget; audit and attack mechanisms
  psi        find the users that two parties both have, by private set intersection
  data       describe the data of an experiment, or download a data set
  configs    list, show and copy the configs of the zoo; show any config without running it
  list       list methods, publishers, perturbations, datamodules, callbacks and configs, plugins included

examples:
  python -m zoo fit --config configs/pricdr/quickstart.yaml
  python -m zoo fit --resume runs/PriCDR/version_0 --trainer.max_epochs 200
  python -m zoo publish --config configs/pricdr/douban.yaml --out releases/book
  python -m zoo fit --config configs/pricdr/douban.yaml --data.releases.book releases/book
  python -m zoo benchmark --config configs/benchmarks/smoke.yaml
  python -m zoo recommend runs/PriCDR/version_0 --users u0001,u0002

First options of a command:  python -m zoo fit --help       All options: python -m zoo fit --help-all
Arguments of a class:        python -m zoo fit --model.help PriCDR
"""
#: Usage of ``list``.
LIST = f"usage: python -m zoo list [KIND ...]    kinds: {', '.join(KINDS)} (default: all)\n"


def unknown_command(command: str) -> str:
    """Return the message about a command that does not exist, with similar names."""
    known = re.findall(r"^  ([a-z]+)  ", HELP.split("commands:")[1].split("examples:")[0], re.M)
    return f"error: unknown command {command!r}.{suggest(command, known)}\nCommands: {', '.join(known)}."


def list_kinds(kinds: list[str]) -> str:
    """Return what ``list`` prints; exit if a kind does not exist."""
    if wrong := [kind for kind in kinds if kind not in KINDS]:
        sys.stderr.write(f"error: unknown kind {wrong[0]!r}.{suggest(wrong[0], KINDS)}\n{LIST}")
        sys.exit(2)
    return listing(kinds or KINDS)


def answer(arguments: list[str]) -> bool:
    """Answer what needs no training library, and return whether that was all; exit if the command does not exist."""
    if not arguments or arguments in (["-h"], ["--help"]):
        print(HELP, end="")
    elif arguments[0] == "list" and {"-h", "--help"} & {*arguments}:
        print(LIST, end="")
    elif arguments[0] == "list":
        print(list_kinds(arguments[1:]))
    elif arguments == ["--version"]:
        print(VERSION)
    elif (text := requested_help(arguments)) is not None:
        print(text, end="")
    elif not arguments[0].startswith("-") and f"\n  {arguments[0]} " not in HELP:
        sys.stderr.write(unknown_command(arguments[0]) + "\n")
        sys.exit(2)
    else:
        return False
    return True


def main() -> None:
    """Run the command; end as other programs do if the reader of the output closes it (``| head``)."""
    try:
        run_command()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python tries again as it ends
        sys.exit(PIPE_CLOSED)


def read_arguments() -> list[str]:
    """Return the arguments, with builtin configs resolved; exit if our packages or such a config cannot be found."""
    from zoo.runtime.import_order import overwritten  # changes `sys.path`, so only if a command runs

    try:
        if problem := overwritten():
            raise FileNotFoundError(problem)
        return builtin_configs.with_configs_found(list(map(with_home, sys.argv[1:])))
    except (FileNotFoundError, SettingsFileError) as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)


def run_command() -> None:
    """Answer at once what needs no training library; else import and run the command."""
    arguments = sys.argv[1:] = read_arguments()
    if answer(arguments):
        return
    match arguments[0]:
        case "benchmark":
            from zoo.benchmark.command import main as run
        case "report":
            from zoo.benchmark.report.command import main as run
        case "recommend" | "similar" | "vectors" | "serve" | "export":
            return _command_of_runs(arguments[0])(arguments[1:])
        case "configs":
            from zoo.commands.configs import main as run
        case "data":
            from zoo.commands.data.command import main as run
        case "psi":
            from zoo.commands.psi import main as run
        case "privacy":
            from zoo.commands.privacy.command import main as run
        case _:
            from zoo.commands.run import main as run_experiment

            return run_experiment()
    run(arguments[1:])


def _command_of_runs(name: str) -> Callable[[Sequence[str]], None]:
    """Return a command that uses a finished run."""
    match name:
        case "recommend":
            from zoo.commands.recommend import main as run
        case "similar":
            from zoo.commands.similar import main as run
        case "vectors":
            from zoo.commands.similar import vectors as run
        case "serve":
            from zoo.commands.serve import main as run
        case _:
            from zoo.commands.export import main as run
    return run


if __name__ == "__main__":
    main()
