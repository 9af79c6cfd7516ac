"""``python -m zoo list``: what there is to name, in a line each; read from files, nothing is imported for it."""

import ast
from collections.abc import Collection
from pathlib import Path

from zoo.runtime import builtin_configs, plugins
from zoo.runtime.exports import METHODS, PERTURBATIONS, PUBLISHERS, imported_names

#: What is listed, in this order.
KINDS = ("methods", "publishers", "perturbations", "datamodules", "callbacks", "configs")
#: Bases, which nobody names.
BASES = ("zoo.methods.one_bit_mc.perturbation.Perturbation", "datamodules.base", "datamodules.protocol")


def listing(kinds: Collection[str] = KINDS) -> str:
    """Methods, publishers, perturbations, datamodules, callbacks and configs, ours and those of installed packages.

    Args:
        kinds: Which of these.
    """
    root = Path(__file__).parents[2]
    homes = {
        "methods": METHODS,
        "publishers": PUBLISHERS,
        "perturbations": PERTURBATIONS,
        "datamodules": imported_names(root / "datamodules" / "__init__.py"),
        "callbacks": imported_names(root / "callbacks" / "__init__.py"),
    }
    sections = {
        title: {
            name: first_line(root / (home.replace(".", "/") + ".py"), name)
            for name, home in sorted(found.items())
            if home not in BASES and f"{home}.{name}" not in BASES
        }
        | {name: line for name, line in of_plugins(title).items() if name not in found}
        for title, found in homes.items()
        if title in kinds
    }
    if "configs" in kinds:
        sections["configs (--config NAME; python -m zoo configs show NAME)"] = {
            name: head_of(name) for name in builtin_configs.names()
        }
    lines = []
    for title, said in sections.items():
        width = max(map(len, said), default=0)
        lines += [f"{title}:", *(f"  {name:<{width}}  {text}".rstrip() for name, text in said.items())]
    return "\n".join(lines)


def first_line(file: Path, name: str) -> str:
    """First line of a class's docstring, read without importing it."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return (ast.get_docstring(node) or "").split("\n")[0]
    return ""


def head_of(config: str) -> str:
    """The comment in the first line of a config that comes with the code."""
    file = builtin_configs.folder() / f"{config}{builtin_configs.ENDING}"
    head = file.read_text(encoding="utf-8").split("\n", 1)[0]
    return head.lstrip("# ") if head.startswith("#") else ""


def of_plugins(kind: str) -> dict[str, str]:
    """What installed packages bring of a kind: the line of each names its package, and says where something is wrong."""
    if kind not in plugins.GROUPS:
        return {}
    return {_shown(name): _shown(_line(plugin)) for name, plugin in sorted(plugins.brought(kind).items())}


def _line(plugin: plugins.Plugin) -> str:
    whose = f"[{plugin.package}: {plugin.path}]"
    if (file := plugin.source()) is None:
        return f"{whose} is not there: its package is damaged or gone. Install it again, or uninstall it"
    try:
        return f"{first_line(file, plugin.attribute)} {whose}".lstrip()
    except (OSError, SyntaxError, ValueError) as error:
        return f"{whose} cannot be read ({type(error).__name__}). Mend or uninstall its package"


def _shown(text: str) -> str:
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
