"""Hooks of the site: notebooks are shown as pages, and the roles of names in docstrings as names."""

import base64
import re
from typing import Any

from nbconvert import MarkdownExporter

ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):(?=<code>)")
#: A name on a page of the reference, and the heading that is asked for it.
ASKED = re.compile(r"^::: (\S+)\n    options:\n      heading: (\S+)$", re.MULTILINE)


def on_files(files: Any, config: Any, **_: Any) -> Any:  # noqa: ANN401  the builder's own objects
    """In the place of each notebook a page, with its pictures inside."""
    for notebook in [file for file in files if file.src_uri.endswith(".ipynb")]:
        files.remove(notebook)
        place = notebook.src_uri.replace(".ipynb", ".md")
        files.append(type(notebook).generated(config, place, content=page(notebook)))
    return files


def page(notebook: Any) -> str:  # noqa: ANN401
    """A notebook in Markdown; where to get the notebook itself stands below its heading."""
    text, found = MarkdownExporter().from_filename(notebook.abs_src_path)
    for name, picture in found["outputs"].items():
        text = text.replace(f"]({name})", f"](data:image/png;base64,{base64.b64encode(picture).decode()})")
    heading, rest = text.lstrip().split("\n", 1)
    said = f"*`docs/{notebook.src_uri}`, with what came of it when it was run last.*"
    return f"{heading}\n\n{said}\n{rest}"


def on_page_markdown(markdown: str, **_: Any) -> str:  # noqa: ANN401
    """Links to notebooks lead to their pages."""
    return re.sub(r"\]\(([^)\s]+)\.ipynb\)", r"](\1.md)", markdown)


def on_page_content(html: str, page: Any, **_: Any) -> str:  # noqa: ANN401
    """The content of a page without roles of reStructuredText, and classes under the name that they are imported by.

    The theme's template of a function takes the heading that a page asks for, that of a class does not.
    """
    for path, heading in ASKED.findall(page.markdown):
        html = html.replace(f">{path}</span>", f">{heading}</span>")
    return ROLE.sub("", html)
