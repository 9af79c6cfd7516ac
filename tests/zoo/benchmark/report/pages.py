"""Reports taken apart: the HTML page element by element, and the tables of the Markdown page."""

import re
from html.parser import HTMLParser

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """A page taken apart; every element must be closed where it was opened."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.tables: list[list[list[str]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names))
        self.seen.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("th", "td"):
            self.tables[-1][-1].append("")
        elif tag in ("h1", "h2", "h3", "caption", "title", "p", "li", "code", "b", "strong", "pre", "nav", "summary"):
            self.texts.setdefault(tag, []).append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "td" in self.open or "th" in self.open:
            self.tables[-1][-1][-1] += data
        for tag in set(self.open) & self.texts.keys():
            self.texts[tag][-1] += data

    def values(self, name: str) -> list[str]:
        """An attribute wherever it stands."""
        return [attributes[name] for _, attributes in self.seen if name in attributes]

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.seen)


def markdown_tables(text: str) -> list[list[list[str]]]:
    """Tables with their heads, without the line of dashes."""
    made: list[list[list[str]]] = []
    before = ""
    for line in text.splitlines():
        if line.startswith("|"):
            if not before.startswith("|"):
                made.append([])
            made[-1].append([part.strip() for part in re.split(r"(?<!\\)\|", line)[1:-1]])
        before = line
    for table in made:
        assert all(re.fullmatch(r"---:?", part) for part in table.pop(1))
    return made


def plain(text: str) -> str:
    """A cell of Markdown as it is read."""
    return text.replace("\\|", "|").replace("&lt;", "<").replace("**", "")
