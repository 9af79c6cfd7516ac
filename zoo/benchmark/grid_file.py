"""Read the YAML file of a benchmark."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from pydantic import TypeAdapter, ValidationError

from zoo.benchmark.grid import Benchmark, BenchmarkError
from zoo.runtime import builtin_configs
from zoo.runtime.settings_files import SettingsFileError, check_size, read_yaml

#: Characters of a library's message that are shown.
LONGEST_WORDS = 200


def read_benchmark(path: Path) -> Benchmark:
    """Read a benchmark; raise `BenchmarkError` if the file is missing or wrong."""
    if not path.is_file():
        raise BenchmarkError(builtin_configs.not_found_message(path))
    try:
        check_size(path)
        settings = read_yaml(path.read_text(encoding="utf-8"), path)
    except SettingsFileError as error:
        raise BenchmarkError(str(error)) from error
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise BenchmarkError(f"{path} is not valid YAML: {_short(error)}") from error
    if not isinstance(settings, dict):
        raise BenchmarkError(f"{path} has no settings of a benchmark. It needs title, tasks and systems.")
    try:
        return TypeAdapter(Benchmark).validate_json(json.dumps(settings))
    except ValidationError as error:
        raise BenchmarkError(f"{path}: {_message(error)}") from error
    except (TypeError, ValueError, RecursionError) as error:  # such as a date, or a key that is no text
        raise BenchmarkError(f"{path} has a value that is no text, number, list or map: {_short(error)}.") from error


def _short(said: object) -> str:
    """Return the start of a library's message, which may repeat the whole file."""
    return text if len(text := str(said)) <= LONGEST_WORDS else f"{text[:LONGEST_WORDS]} ..."


def _message(error: ValidationError) -> str:
    sentences = []
    for found in error.errors():
        cause = found.get("ctx", {}).get("error")
        where = ".".join(str(part) for part in found["loc"])
        message = f"{found['msg']}; got {_short(repr(found['input']))}."
        if isinstance(cause, ValueError):
            message = str(cause)
        elif found["type"] == "unexpected_keyword_argument":
            message = "unknown setting."
        sentences.append(f"{where}: {message}" if where else message)
    return " ".join(sentences)
