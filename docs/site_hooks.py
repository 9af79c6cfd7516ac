"""Hooks of the site: show notebooks as pages, and names in docstrings without their roles."""

import base64
import re
from typing import Any

from nbconvert import MarkdownExporter

ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):(?=<code>)")
#: A name on a page of the reference, and its heading.
HEADINGS = re.compile(r"^::: (\S+)\n    options:\n      heading: (\S+)$", re.MULTILINE)


def on_files(files: Any, config: Any, **_: Any) -> Any:  # noqa: ANN401  the builder's own objects
    """Replace each notebook by a page with its pictures."""
    for notebook in [file for file in files if file.src_uri.endswith(".ipynb")]:
        files.remove(notebook)
        place = notebook.src_uri.replace(".ipynb", ".md")
        files.append(type(notebook).generated(config, place, content=page(notebook)))
    return files


def page(notebook: Any) -> str:  # noqa: ANN401
    """Return a notebook in Markdown, with its path below the heading."""
    text, found = MarkdownExporter().from_filename(notebook.abs_src_path)
    for name, picture in found["outputs"].items():
        text = text.replace(f"]({name})", f"](data:image/png;base64,{base64.b64encode(picture).decode()})")
    heading, rest = text.lstrip().split("\n", 1)
    note = f"*`docs/{notebook.src_uri}`, with the outputs of its last run.*"
    return f"{heading}\n\n{note}\n{rest}"


def on_page_markdown(markdown: str, **_: Any) -> str:  # noqa: ANN401
    """Point links to notebooks at their pages."""
    return re.sub(r"\]\(([^)\s]+)\.ipynb\)", r"](\1.md)", markdown)


def on_page_content(html: str, page: Any, **_: Any) -> str:  # noqa: ANN401
    """Return a page without roles of reStructuredText, and with classes under their import names.

    The theme's template of a class ignores the heading of a directive.
    """
    for path, heading in HEADINGS.findall(page.markdown):
        html = html.replace(f">{path}</span>", f">{heading}</span>")
    return ROLE.sub("", html)
