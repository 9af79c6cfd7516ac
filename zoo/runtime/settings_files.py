"""Settings files: YAML and JSON without repeated keys, of which a library would silently use the last, and paths with ``~``."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import yaml

#: Settings of data that are paths, or map names to paths.
PATHS = ("root", "trusted", "catalogues", "files", "folder")
#: Characters of JSON whose repeated keys are named with their lines.
_SHORT = 2**16
#: Most bytes of a config; most values of YAML with aliases written out, and its deepest value.
MOST_BYTES, MOST_VALUES, MOST_LEVELS = 2**20, 100_000, 500


class SettingsFileError(ValueError):
    """A file has a key twice, or too many bytes, values or levels."""


def check_size(path: Path) -> None:
    """Refuse a config of more than `MOST_BYTES` before it is read."""
    if (size := path.stat().st_size) > MOST_BYTES:
        raise SettingsFileError(f"{path} has {size:,} bytes. Allowed: {MOST_BYTES:,}. Shorten it.")


def read_yaml(text: str, where: object = "") -> Any:  # noqa: ANN401  what YAML holds
    r"""Return the content of a YAML file as `yaml.safe_load` does; a `SettingsFileError` refuses what `check_keys` does.

    Examples:
        >>> read_yaml("model: BPR\ndata: Synthetic\nmodel: EASE", "a.yaml")
        Traceback (most recent call last):
        ...
        zoo.runtime.settings_files.SettingsFileError: a.yaml: model is given twice (lines 1 and 3). Keep one.
    """
    import yaml

    check_keys(text, where)
    return yaml.safe_load(text)


def _check_count(root: yaml.Node | None, where: object) -> None:
    """Refuse YAML with more than `MOST_VALUES` values or `MOST_LEVELS` levels, aliases and merges written out."""
    import yaml

    left, count = [(root, 1)], 0
    while left:
        (node, depth), count = left.pop(), count + 1
        if count + len(left) > MOST_VALUES:
            raise SettingsFileError(f"{_place(where)}more than {MOST_VALUES:,} values, aliases (*) expanded. Split it.")
        if isinstance(node, yaml.CollectionNode) and depth > MOST_LEVELS:
            raise _too_deep(where)
        if isinstance(node, yaml.MappingNode):  # a key that is no text has levels too
            left += [(one, depth + 1) for pair in node.value for one in pair[isinstance(pair[0], yaml.ScalarNode) :]]
        elif isinstance(node, yaml.SequenceNode):
            left += [(one, depth + 1) for one in node.value]


def read_json(text: str, where: object = "", **settings: Any) -> Any:  # noqa: ANN401  what JSON holds
    """Return the content of a JSON file as `json.loads` does; a `SettingsFileError` refuses a repeated key."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            if len(text) <= _SHORT:
                check_keys(text, where)  # which knows the lines, and takes much memory and time
            raise _repeated(Counter(key for key, _ in pairs).most_common(1)[0][0], where, "")
        return found

    return json.loads(text, object_pairs_hook=once, **settings)


def check_keys(text: str, where: object = "") -> None:
    """Refuse YAML, or JSON, with a repeated key or too many values, in the file ``where``. Invalid YAML passes, for its parser."""
    if len(text) <= MOST_LEVELS and text.count(":") < 2 and "*" not in text:
        return
    import yaml  # late, so that `--help` stays quick

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_depth(yaml.parse(text, Loader=loader), where)
        node = yaml.compose(text, Loader=loader)
    except SettingsFileError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError):
        return
    _check_count(node, where)
    for path, first, second in _repeats(node):
        lines = f" (lines {first} and {second})" if first < second else ""
        raise _repeated(path, where, lines)


def _check_depth(events: Iterator[yaml.Event], where: object) -> None:
    """Refuse YAML of more than `MOST_LEVELS` levels: libyaml composes by recursion in C, which ends the process."""
    import yaml

    depth = 0
    for event in events:
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MOST_LEVELS:
            raise _too_deep(where)


def _repeats(root: yaml.Node | None) -> Iterator[tuple[str, int, int]]:
    """Yield each repeated key with dots before it and its first two lines; aliases are followed once."""
    import yaml

    left, seen = list[tuple[tuple[Any, ...], yaml.Node | None]]([((), root)]), set[int]()
    # A path is its parent and a key: long keys joined for each value would exhaust memory.
    while left:
        parent, node = left.pop()
        if id(node) in seen or not isinstance(node, yaml.MappingNode | yaml.SequenceNode):
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            left += [(parent, one) for one in node.value]
            continue
        lines: dict[tuple[str, str], int] = {}
        for key, value in node.value:
            line, path = key.start_mark.line + 1, (parent, key.value if isinstance(key, yaml.ScalarNode) else "?")
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in lines:
                    yield _dotted(path), lines[key.tag, key.value], line
                lines[key.tag, key.value] = line
            left.append((path, value))


def _dotted(path: tuple[Any, ...]) -> str:
    keys = list[str]()
    while path:
        path, key = path
        keys.insert(0, key)
    return ".".join(keys)


def _too_deep(where: object) -> SettingsFileError:
    return SettingsFileError(f"{_place(where)}more than {MOST_LEVELS} levels, aliases (*) expanded. Flatten it.")


def _repeated(key: str, where: object, lines: str) -> SettingsFileError:
    from zoo.runtime.run_folder import visible

    return SettingsFileError(f"{_place(where)}{visible(key)} is given twice{lines}. Keep one.")


def _place(where: object) -> str:
    from zoo.runtime.run_folder import visible

    return f"{visible(str(where))}: " if str(where) else ""


def user_path(path: str | os.PathLike[str]) -> Path:
    """Return a path with ``~`` as the home folder.

    Examples:
        >>> user_path("~/data") == Path.home() / "data", user_path("data~").name
        (True, 'data~')
    """
    return Path(path).expanduser()


def with_home(value: Any) -> Any:  # noqa: ANN401  what YAML holds
    """Return settings, or an argument such as ``--data.root=~/data``, with ``~/`` at the start of a text as the home folder."""
    if isinstance(value, dict):
        return {key: with_home(one) for key, one in value.items()}
    if isinstance(value, list):
        return [with_home(one) for one in value]
    found = re.fullmatch(r"([\w.-]*=)?(~[/\\].*|~)", value, re.S) if isinstance(value, str) else None
    return value if found is None else f"{found[1] or ''}{Path(found[2]).expanduser()}"


def with_absolute_paths(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of data with absolute paths, so that the run is found from any folder."""

    def absolute(value: Any) -> Any:  # noqa: ANN401  a path, a mapping, or another value
        if isinstance(value, Mapping):
            return {name: absolute(one) for name, one in value.items()}
        return str(user_path(value).absolute()) if isinstance(value, str) else value

    return {name: absolute(value) if name in PATHS else value for name, value in settings.items()}
