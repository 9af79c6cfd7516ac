"""``python -m zoo``: a front without heavy imports, then the command that is asked for."""

if __name__ == "__main__":  # `main` sees to it otherwise; before anything of ours is taken from where one stands
    pass

import os
import re
import sys

from zoo.commands.cached_help import fit_help
from zoo.commands.listing import KINDS, listing
from zoo.runtime import builtin_configs
from zoo.runtime.exports import VERSION
from zoo.runtime.suggestions import suggest

#: How a process ends that nobody listens to any more, as shells have it: 128 and the number of the signal.
PIPE_CLOSED = 141

HELP = """usage: python -m zoo COMMAND [options]

Privacy-preserving cross-domain recommendation: a source party publishes once, a target party trains on the release.

commands:
  fit        train at the target; publishes first where all data are at one place; ends by testing the best checkpoint
  validate   figures of a checkpoint on the validation items
  test       figures of a checkpoint on the test items
  predict    recommendations of a checkpoint, as Parquet
  publish    write the release of a source party
  recommend  the best items for some users, from a run or a bundle
  export     a run as a bundle to hand over: weights, item ids, figures, privacy record, model card
  benchmark  run a grid of experiments, in parallel, resumable
  report     tables, tests and figures of a benchmark's runs
  privacy    plan, show and add up what releases cost, keep a budget, audit a mechanism, draw its curve
  data       describe what an experiment reads, or fetch a data set from its owner
  configs    the configs that come with the code: list, show, copy; and show any config without running it
  list       methods, publishers, perturbations, datamodules, callbacks and configs, with those of installed packages

examples:
  python -m zoo fit --config configs/pricdr/quickstart.yaml
  python -m zoo fit --resume runs/PriCDR/version_0 --trainer.max_epochs 200
  python -m zoo publish --config configs/pricdr/douban.yaml --out releases/book
  python -m zoo fit --config configs/pricdr/douban.yaml --data.releases.book releases/book
  python -m zoo benchmark --config configs/benchmarks/smoke.yaml
  python -m zoo recommend runs/PriCDR/version_0 --users u0001,u0002

Options of a command:  python -m zoo fit --help            Of a class:  python -m zoo fit --model.help PriCDR
"""
#: What ``list`` takes.
LIST = f"usage: python -m zoo list [KIND ...]    kinds: {', '.join(KINDS)}; without one, all\n"


def unknown(command: str) -> str:
    """What is said of a command that there is not: the nearest ones."""
    known = re.findall(r"^  ([a-z]+)  ", HELP.split("commands:")[1].split("examples:")[0], re.M)
    return f"There is no command {command!r}.{suggest(command, known)}\nCommands: {', '.join(known)}."


def listed(kinds: list[str]) -> str:
    """What ``list`` prints: of the kinds that are asked for, or of all; a kind that there is not ends here."""
    if wrong := [kind for kind in kinds if kind not in KINDS]:
        sys.stderr.write(f"error: nothing is listed as {wrong[0]!r}.{suggest(wrong[0], KINDS)}\n{LIST}")
        sys.exit(2)
    return listing(kinds or KINDS)


def answered(arguments: list[str]) -> bool:
    """Answer what needs no library; whether it was answered. A command that there is not ends here."""
    if not arguments or arguments in (["-h"], ["--help"]):
        print(HELP, end="")
    elif arguments[0] == "list" and {"-h", "--help"} & {*arguments}:
        print(LIST, end="")
    elif arguments[0] == "list":
        print(listed(arguments[1:]))
    elif arguments == ["--version"]:
        print(VERSION)
    elif arguments in (["fit", "-h"], ["fit", "--help"]):
        print(fit_help(), end="")
    elif not arguments[0].startswith("-") and f"\n  {arguments[0]} " not in HELP:
        sys.stderr.write(unknown(arguments[0]) + "\n")
        sys.exit(2)
    else:
        return False
    return True


def main() -> None:
    """Run the command; whoever reads what it prints may stop reading (``| head``), which ends it like other programs."""
    try:
        command()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python tries again as it ends
        sys.exit(PIPE_CLOSED)


def given() -> list[str]:
    """Return the arguments, with configs of ours found; without our own packages, or such a config, the program ends here."""
    from zoo.runtime.import_order import overwritten  # moves `sys.path`: not where this module is only looked at

    if problem := overwritten():
        sys.stderr.write(f"error: {problem}\n")
        sys.exit(2)
    try:
        return builtin_configs.with_configs_found(sys.argv[1:])
    except FileNotFoundError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)


def command() -> None:
    """Answer at once what needs no training library; hand everything else to the command line proper."""
    arguments = sys.argv[1:] = given()
    if answered(arguments):
        return
    if arguments[0] == "benchmark":
        from zoo.benchmark.command import main as benchmark

        benchmark(arguments[1:])
    elif arguments[0] == "report":
        from zoo.benchmark.report.command import main as report

        report(arguments[1:])
    elif arguments[0] == "recommend":
        from zoo.commands.recommend import main as recommend

        recommend(arguments[1:])
    elif arguments[0] == "export":
        from zoo.commands.export import main as export

        export(arguments[1:])
    elif arguments[0] == "configs":
        from zoo.commands.configs import main as configs

        configs(arguments[1:])
    elif arguments[0] == "data":
        from zoo.commands.data.command import main as data

        data(arguments[1:])
    elif arguments[0] == "privacy":
        from zoo.commands.privacy.command import main as privacy

        privacy(arguments[1:])
    else:
        from zoo.commands.run import main as run

        run()


if __name__ == "__main__":
    main()
