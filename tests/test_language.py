"""What people read: banned phrases, words per sentence, widths of tables, and examples that run."""

import ast
import doctest
import importlib
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CODE = ("zoo", "datamodules", "callbacks", "benchmarks", "docs", "examples")
#: Words of a sentence on a page, and of all messages; characters of a table's line as a reader sees it.
LONGEST_SENTENCE, MESSAGE_WORDS, ALL_MESSAGE_WORDS, TABLE_WIDTH = 30, 25, 12_643, 110

#: What is not written, and what is written instead.
BANNED = {
    r"noise control": "noise baseline",
    r"told (from|apart)|tell(s|ing)? apart": "significantly different from",
    r"the wrong people": "shuffled users",
    r"people without (a )?history|people with(out)? (a )?history of": "cold-start users",
    r"(stands?|lies?|kept) beside": "is next to",
    r"lie[s]? here": "is available locally",
    r"drawn anew": "resampled",
    r"(hold|held) against": "compare with",
    r"read off": "derived from the ratings",
    r"spen[dt]s? together": "total budget",
    r"seconds of the processor|processor's seconds": "CPU time",
    r"as (it|they) comes?\b": "unprocessed",
    r"how alike": "similarity",
    r"target alone": "single-domain baseline",
    r"\bwhoever\b|\bnobody\b": "a noun of the field",
    r"who has to\b|who wants? to\b": "if you",
    r"\bstands on\b": "uses, is based on",
    r"on the condition that": "assumes",
    r"goes on with|begun with": "continues, resumes",
    r"in the place of": "instead of",
    r"is to be had|are to be had": "is available",
    r"\bbe rid of\b|\brid of\b": "remove",
}


def pages() -> list[Path]:
    """Every page that somebody wrote; reports are checked through the code that writes them."""
    named = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    found = [*named, *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if "results" not in page.parts or page.name in ("notes.md", "index.md")]


def modules() -> list[Path]:
    """Every module of the code."""
    return sorted(file for top in CODE for file in (ROOT / top).rglob("*.py") if "tests" not in file.parts)


def seen(page: Path) -> str:
    """The text of a page as a reader sees it: no comments, no code, no targets of links."""
    text = re.sub(r"\A---\n.*?\n---\n", "", page.read_text(encoding="utf-8"), flags=re.S)
    text = re.sub(r"<!--.*?-->", "", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M), flags=re.S)
    return re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)


def sentences(text: str) -> Iterator[str]:
    """Sentences of paragraphs and of items of lists; tables and headings have none."""
    lines = [line for line in text.splitlines() if not line.startswith(("|", "#", "<", "!"))]
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", "\n".join(lines)):
        yield from re.split(r"(?<=[.!?:;])\s+(?=[A-Z`*\[\"(0-9])", " ".join(paragraph.split()))


def faults(page: Path) -> Iterator[str]:
    """What a page has that it may not have."""
    text = seen(page)
    for banned, right in BANNED.items():
        yield from (f"{found[0]!r}: write {right!r}" for found in re.finditer(banned, text))
    for said in sentences(text):
        if (words := len(said.split())) > LONGEST_SENTENCE:
            yield f"{words} words: {said}"
    for line in text.splitlines():
        if line.startswith("|") and len(line) > TABLE_WIDTH:
            yield f"table of {len(line)} characters: {line}"


def test_pages() -> None:
    wrong = [f"{page.relative_to(ROOT)}: {fault}" for page in pages() for fault in faults(page)]
    assert not wrong, "\n".join(wrong)


def strings(file: Path) -> Iterator[str]:
    """Every string of a module, docstrings too, and its comments."""
    source = file.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield " ".join(node.value.split())
    yield from re.findall(r"#:? (.*)", source)


@pytest.mark.thorough
def test_code_has_no_banned_phrase() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}: {found[0]!r}: write {right!r}"
        for file in modules()
        for said in strings(file)
        for banned, right in BANNED.items()
        for found in re.finditer(banned, said)
    ]
    assert not wrong, "\n".join(wrong)


def message_words(file: Path) -> Iterator[int]:
    """Words of each raised message; a value that is filled in counts as one."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Raise):
            text = [
                part.value if isinstance(part, ast.Constant) else " x "
                for part in ast.walk(node)
                if isinstance(part, ast.FormattedValue)
                or (isinstance(part, ast.Constant) and isinstance(part.value, str))
            ]
            if words := len(" ".join(map(str, text)).split()):
                yield words


@pytest.mark.thorough
def test_messages_are_short() -> None:
    counts = sorted(words for file in modules() for words in message_words(file))
    assert statistics.quantiles(counts, n=10)[-1] <= MESSAGE_WORDS
    assert sum(counts) <= ALL_MESSAGE_WORDS


def room(file: Path) -> str:
    return "/".join(file.parts[: 2 if file.parts[0] == "zoo" else 1])


WITH_EXAMPLES = [file.relative_to(ROOT) for file in modules() if ">>> " in file.read_text(encoding="utf-8")]


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted({room(file) for file in WITH_EXAMPLES}))
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for file in (file for file in WITH_EXAMPLES if room(file) == name):
        module = importlib.import_module(".".join(file.with_suffix("").parts).removesuffix(".__init__"))
        assert doctest.testmod(module, optionflags=flags).failed == 0, file
