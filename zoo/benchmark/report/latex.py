r"""Tables of a report in LaTeX: for ``\input`` in a paper that loads booktabs."""

import re
from collections.abc import Iterator, Sequence

from zoo.benchmark.grid import slug
from zoo.benchmark.report.page import Chapter
from zoo.benchmark.report.paired_differences import Gain
from zoo.benchmark.report.results import RANKINGS, Results, ResultsError
from zoo.benchmark.report.tables import Table, metric_title
from zoo.runtime.run_folder import visible
from zoo.runtime.suggestions import suggest

#: Characters that LaTeX reads as commands, and those that its fonts lack.
ESCAPES = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
ESCAPES |= {character: f"\\{character}" for character in "&%$#_{}"}
ESCAPES |= {"±": r"$\pm$", "†": r"\dag{}", "‡": r"\ddag{}", "§": r"\S{}", "¶": r"\P{}", "<": "$<$", ">": "$>$"}
#: Mark of a figure above the baseline's with p < .05.
MARK = "$^{*}$"
_MARKED = "Significantly better than {} (paired over users, p < .05, Holm)."


def latex_files(
    results: Results, chapters: Sequence[Chapter], found: Sequence[Gain], title: str, columns: Sequence[str]
) -> dict[str, str]:
    """Return a file for each table with these columns whose title, with those of its task and section, contains a text.

    Raises:
        ResultsError: No table has this title, or none of these has all columns.
    """
    named = [(chapter, title_of, table) for chapter in chapters for title_of, table in _tables(chapter)]
    chosen = [(chapter, name, table) for chapter, name, table in named if title.lower() in name.lower()]
    if not chosen:
        names = [name for _, name, _ in named]
        raise ResultsError(
            f"No table has {title!r} in its title.{suggest(title, names)} Titles: {'; '.join(names[:8])}."
        )
    if all(lacking := [[name for name in columns if name not in table.columns] for _, _, table in chosen]):
        (_, name, table), (other, *_) = chosen[0], lacking[0]
        raise ResultsError(f"{name!r} has no column {other!r}. Columns: {', '.join(table.columns)}.")
    return {
        f"{slug(name)}.tex": latex_of(table, columns, name, _significant(results, found, chapter.task, name))
        for (chapter, name, table), other in zip(chosen, lacking, strict=True)
        if not other
    }


def _tables(chapter: Chapter) -> Iterator[tuple[str, Table]]:
    for section in chapter.sections:
        for table in filter(lambda table: table.rows, section.tables):
            parts = dict.fromkeys(filter(None, (chapter.title, section.title, table.title)))
            yield ": ".join(parts), table


def _significant(results: Results, found: Sequence[Gain], task: str, name: str) -> tuple[str, set[tuple[str, str]]]:
    """Return the baseline, and row and column of the figures of a leaderboard that are significantly above its own."""
    ranking = next((ranking for ranking in RANKINGS if f"{ranking.title()} ranking" in name), "")
    baseline = results.baseline_of(task, ranking) if ranking else ""
    own = [gain for gain in found if (gain.task, gain.ranking, gain.against) == (task, ranking, baseline) and baseline]
    above = {(gain.line.name, gain.measure) for gain in own if gain.users_holm < 0.05 and gain.users.difference > 0}
    return baseline, {(row, metric_title(measure)) for row, measure in above}


def latex_of(
    table: Table,
    columns: Sequence[str] = (),
    title: str = "",
    significant: tuple[str, set[tuple[str, str]]] = ("", set()),
) -> str:
    r"""Return a table for LaTeX with booktabs: the best in bold, as in the table, and significant figures marked.

    Args:
        table: Table of a report.
        columns: Columns in their order; empty: all.
        title: Caption.
        significant: Name of the baseline, and row and column of the figures that are significantly above its own.

    Examples:
        >>> table = Table("", ["row", "HR@10"], [["A_1", "**0.5000** ±0.0100"], ["B", "0.4000"]])
        >>> print(latex_of(table, significant=("B", {("A_1", "HR@10")})))
        \begin{tabular}{lr}
        \toprule
        row & HR@10 \\
        \midrule
        A\_1 & \textbf{0.5000} $\pm$0.0100$^{*}$ \\
        B & 0.4000 \\
        \bottomrule
        \end{tabular}
        <BLANKLINE>
        $^{*}$ Significantly better than B (paired over users, p $<$ .05, Holm).
        <BLANKLINE>
    """
    chosen = [table.columns.index(name) for name in columns] or [*range(len(table.columns))]
    words = {*range(table.num_text_columns)} | ({len(table.columns) - 1} if table.last_is_text else set())
    baseline, above = significant
    lines = []
    for row in table.rows:
        marked = [MARK if (row[0].removesuffix(" †"), table.columns[i]) in above else "" for i in chosen]
        lines.append(" & ".join(escaped(row[i]) + mark for i, mark in zip(chosen, marked, strict=True)) + r" \\")
    heads = " & ".join(escaped(table.columns[i]) for i in chosen) + r" \\"
    notes = [
        *([f"{MARK} {escaped(_MARKED.format(baseline))}"] if MARK in "".join(lines) else []),
        *map(escaped, table.notes),
    ]
    aligned = "".join("l" if i in words else "r" for i in chosen)
    body = [
        rf"\begin{{tabular}}{{{aligned}}}",
        r"\toprule",
        heads,
        r"\midrule",
        *lines,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    head = [f"% {visible(title)}"] if title else []
    return "\n".join([*head, *body, *(f"\n{note}" for note in notes)]) + "\n"


def escaped(text: str) -> str:
    r"""Return text for LaTeX, with ``**`` as bold.

    >>> escaped("**0.5** & 50%")
    '\\textbf{0.5} \\& 50\\%'
    """
    plain = "".join(ESCAPES.get(character, character) for character in text)
    return re.sub(r"\*\*(.+?)\*\*", r"\\textbf{\1}", plain)
