"""``python -m zoo list``: names with one line each, parsed from files without importing them."""

import ast
from collections.abc import Collection
from pathlib import Path

from zoo.runtime import builtin_configs, plugins
from zoo.runtime.exports import METHODS, PERTURBATIONS, PUBLISHERS, imported_names

#: Kinds in the order of the list.
KINDS = ("methods", "publishers", "perturbations", "datamodules", "callbacks", "configs")
#: Base classes, which are not listed.
BASES = ("zoo.methods.one_bit_mc.perturbation.Perturbation", "datamodules.base", "datamodules.protocol")


def listing(kinds: Collection[str] = KINDS) -> str:
    """Return the names of each kind with one line each, ours and those of plugins.

    Examples:
        >>> print(listing(["publishers"]).splitlines()[0])
        publishers:
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
    for title, entries in sections.items():
        width = max(map(len, entries), default=0)
        lines += [f"{title}:", *(f"  {name:<{width}}  {text}".rstrip() for name, text in entries.items())]
    return "\n".join(lines)


def first_line(file: Path, name: str) -> str:
    """Return the first line of a class's docstring without importing it."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return (ast.get_docstring(node) or "").split("\n")[0]
    return ""


def head_of(config: str) -> str:
    """Return the comment in the first line of a builtin config."""
    file = builtin_configs.folder() / f"{config}{builtin_configs.ENDING}"
    head = file.read_text(encoding="utf-8").split("\n", 1)[0]
    return head.lstrip("# ") if head.startswith("#") else ""


def of_plugins(kind: str) -> dict[str, str]:
    """Return the plugins of a kind with one line each, which names the package and any problem."""
    if kind not in plugins.GROUPS:
        return {}
    return {_printable(name): _printable(_line(plugin)) for name, plugin in sorted(plugins.brought(kind).items())}


def _line(plugin: plugins.Plugin) -> str:
    package = f"[{plugin.package}: {plugin.path}]"
    if (file := plugin.source()) is None:
        return f"{package} has no file. Reinstall or uninstall the package"
    try:
        return f"{first_line(file, plugin.attribute)} {package}".lstrip()
    except (OSError, SyntaxError, ValueError) as error:
        return f"{package} cannot be read ({type(error).__name__}). Repair or uninstall the package"


def _printable(text: str) -> str:  # `run_folder.visible` imports too much for a list
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
