"""Lists of docs/command_line.md, from the parsers of the commands, and of docs/benchmark_file.md, from its classes."""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

from docstring_parser import parse

from zoo.benchmark import command as benchmark
from zoo.benchmark import grid
from zoo.benchmark.report import command as report
from zoo.commands.configs import parser as configs
from zoo.commands.data import command as data
from zoo.commands.export import parser as export
from zoo.commands.privacy import command as privacy
from zoo.commands.psi import parser as psi
from zoo.commands.recommend import parser as recommend
from zoo.commands.serve import parser as serve
from zoo.commands.similar import parser as similar
from zoo.commands.similar import vectors_parser as vectors

ROOT = Path(__file__).parent.parent
PARSERS = {
    "recommend": recommend, "similar": similar, "vectors": vectors, "serve": serve, "export": export,
    "benchmark": benchmark.parser, "report": report.parser, "psi": psi, "data": data.parser,
    "configs": configs, "privacy": privacy.parser,
}  # fmt: skip
#: Classes of a benchmark file, the outermost first.
FILE = (grid.Benchmark, grid.Task, grid.PublishedTask, grid.System, grid.Released, grid.Search, grid.Range)


def cell(text: str) -> str:
    """Return text on one line, without what Markdown would read as a tag or as emphasis."""
    parts = " ".join(text.split()).replace("<", "&lt;").split("`")
    return "`".join(part if i % 2 else part.replace("*", "\\*") for i, part in enumerate(parts))


def listed(name: str, meaning: str) -> str:
    """Return an item of a list; help texts are too long for a table."""
    return f"- `{name}`: {cell(meaning)}"


def options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield a list item for each option of a command."""
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
            continue
        shown = ", ".join(action.option_strings) or str(action.metavar or action.dest)
        values = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
        value = f" {values}" if action.option_strings and action.nargs != 0 else ""
        required = " (required)" if action.required and action.option_strings else ""
        yield listed(shown + value, (action.help or "").replace("%(default)s", str(action.default)) + required)


def commands_below(parser: argparse.ArgumentParser) -> dict[str, tuple[argparse.ArgumentParser, str]]:
    """Return the subcommands of a command with their help."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            said = {choice.dest: choice.help or "" for choice in action._choices_actions}
            return {name: (below, said[name]) for name, below in action.choices.items()}
    return {}


def described(parser: argparse.ArgumentParser, heading: str) -> str:
    """Return a command's description and options, and those of its subcommands."""
    text = [heading, cell(parser.description or "")]
    if rows := list(options(parser)):
        text.append("\n".join(rows))
    for name, (below, said) in commands_below(parser).items():
        below.description = below.description or f"{said[:1].upper()}{said[1:]}."
        text.append(described(below, f"### {parser.prog.split(' -m ')[-1].split(' ', 1)[1]} {name}"))
    return "\n\n".join(text)


def arguments_of(method: str) -> str:
    """Return the options of a command in addition to the experiment: arguments of the trainer's method of that name."""
    tree = ast.parse((ROOT / "zoo" / "runs" / "trainer.py").read_text(encoding="utf-8"))
    trainer = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "ZooTrainer")
    found = next(node for node in trainer.body if isinstance(node, ast.FunctionDef) and node.name == method)
    shown = [one for one in parse(ast.get_docstring(found) or "").params if "ot used" not in str(one.description)]
    left_out = ("datamodule", "publisher")
    return "\n".join(
        listed(f"--{one.arg_name}", one.description or "") for one in shown if one.arg_name not in left_out
    )


def fields(kind: type) -> Iterator[str]:
    """Yield a list item for each key of a class: name, type, default, and the comment next to it or above."""
    source = inspect.getsource(kind)
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    for node in ast.parse(source).body[0].body:  # type: ignore[attr-defined]
        if isinstance(node, ast.AnnAssign):
            lines = [comments.get(line, "") for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)]
            above = node.lineno - 1
            while above in comments and source.splitlines()[above - 1].lstrip().startswith("#"):
                lines.insert(0, comments[above])
                above -= 1
            default = ast.unparse(node.value) if node.value else "required"
            default = re.sub(r"field\(default_factory=(?:lambda: )?(.*)\)", r"\1", default)
            default = {"dict": "{}", "list": "[]", "None": "null", "''": "empty", "False": "false", "True": "true"}.get(
                default, default
            )
            kinds = ast.unparse(node.annotation).replace("None", "null")
            shown = default if default == "required" else f"default `{default.strip(chr(39))}`"
            yield f"- `{ast.unparse(node.target)}` (`{kinds}`, {shown}): {cell(' '.join(filter(None, lines)))}"


def benchmark_file() -> str:
    """Return every class of a benchmark file with its keys."""
    text = []
    for kind in FILE:
        text += [f"### {kind.__name__}", (inspect.getdoc(kind) or "").split("\n")[0]]
        text.append("\n".join(fields(kind)))
    return "\n\n".join(text)


def fit_help() -> str:
    """Return what ``fit --help-all`` prints, from its own process: the order of classes is that of imports."""
    printed = subprocess.run(
        [sys.executable, "-m", "zoo", "fit", "--help-all"], cwd=ROOT, capture_output=True, check=True
    )
    # In the form of Python 3.13, which names a value once.
    text = re.sub(r"^(  \S+) ([A-Z]+), (\S+ \2)$", r"\1, \3", printed.stdout.decode("utf-8"), flags=re.MULTILINE)
    text = re.sub("(-c, --config CONFIG)\n {22}", r"\1 ", text)
    return f"```text\n{text.rstrip()}\n```"


def parts() -> dict[Path, dict[str, str]]:
    """Return the generated text of each page."""
    commands = {name: described(parser(), f"## {name}") for name, parser in PARSERS.items()}
    own = {"fit": arguments_of("fit"), "publish": arguments_of("publish"), "fit help": fit_help()}
    return {
        ROOT / "docs" / "command_line.md": commands | own,
        ROOT / "docs" / "benchmark_file.md": {"": benchmark_file()},
    }
