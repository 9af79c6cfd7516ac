"""What a report opens with: five lines, and one figure of all that is compared."""

from collections.abc import Callable, Sequence
from itertools import zip_longest

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from zoo.benchmark.report.figures import COLOURS, Picture, shown
from zoo.benchmark.report.gains import NOISE, Gain
from zoo.benchmark.report.leaderboard import ranked
from zoo.benchmark.report.results import DECIDING, RANKINGS, Line, Results
from zoo.benchmark.report.tables import metric, signed
from zoo.privacy.record.record import rounded_up
from zoo.runtime.suggestions import count_of

#: The figure has the best rows of the first tasks: the rest is in the tables.
TASKS, ROWS = 6, 12
#: Of how many tasks the best row is named; of more it is counted.
NAMED = 3


def ranking_of(results: Results, task: str) -> str:
    """The ranking that a task is summed up by: among all items, unless more of its rows ranked candidates."""
    return max(RANKINGS, key=lambda ranking: sum(line.has(ranking) for line in results.lines[task]))


def summary(results: Results, found: Sequence[Gain]) -> list[str]:
    """Five lines: what is compared, what is best, what is best with a guarantee, who stands above the baseline, what is gained."""
    return [
        _compared(results),
        _best(results, "Best", lambda line: True),
        _best(results, "Best with a guarantee", lambda line: line.guarantee is not None),
        _against(results, found),
        _over_noise(results, found),
    ]


def _compared(results: Results) -> str:
    lines = [line for lines in results.lines.values() for line in lines]
    controls = sum(bool(line.row.control) for line in lines)
    rows = count_of(len(lines), "row") + (f", {controls} of them controls," if controls else "")
    cases = sorted({len(run.cases) for line in lines for run in line.runs})
    tested = f"{cases[0]:,}" if len(cases) == 1 else f"{cases[0]:,} to {cases[-1]:,}"
    return (
        f"Compared: {rows} on {count_of(len(results.lines), 'task')}; {results.finished:,} of {count_of(results.cells, 'run')} "
        f"finished, each tested on {tested} held-out case{'' if tested == '1' else 's'}."
    )


def _best(results: Results, head: str, wanted: Callable[[Line], bool]) -> str:
    """The best row of each task that is no control; of many tasks, how often each is."""
    best: dict[str, Line] = {}
    for task in results.lines:
        lines = [line for line in ranked(results, task, ranking_of(results, task)) if not line.row.control]
        if (first := next(filter(wanted, lines), None)) is not None:
            best[task] = first
    if not best:
        return f"{head}: none of the rows."
    if len(best) <= NAMED:
        return (
            f"{head}, by {metric(DECIDING)}: {'; '.join(_placed(results, task, line) for task, line in best.items())}."
        )
    names = [line.name for line in best.values()]
    often = sorted(dict.fromkeys(names), key=names.count, reverse=True)
    said = "; ".join(f"{name} on {names.count(name)}" for name in often[:NAMED])
    return f"{head}, by {metric(DECIDING)}, of {len(best)} tasks: {said}{'; and others' if len(often) > NAMED else ''}."


def _placed(results: Results, task: str, line: Line) -> str:
    ranking = ranking_of(results, task)
    where = f" on {results.benchmark['tasks'][task]['title']}" if len(results.lines) > 1 else ""
    epsilon = (
        "" if line.epsilon is None else f", epsilon {rounded_up(line.epsilon)} ({line.standing}) for {line.guarantee}"
    )
    return f"{line.name} with {line.mean(ranking, DECIDING):.4f} among {RANKINGS[ranking]}{where}{epsilon}"


def _against(results: Results, found: Sequence[Gain]) -> str:
    """How many rows are told from the baseline; without one, whether the best row is told from the next."""
    own = _of_tasks(results, found, results.baseline)
    if not own:
        return "Told from a baseline: none is named that others could be held against; --baseline NAME names one."
    sure = [gain for gain in own if gain.users_holm < 0.05]
    above = sum(gain.users.difference > 0 for gain in sure)
    return (
        f"Against {results.baseline}, paired over users: {count_of(above, 'row')} above and {len(sure) - above} below it (p < .05 "
        f"after Holm's correction), {len(own) - len(sure)} not told from it."
    )


def _over_noise(results: Results, found: Sequence[Gain]) -> str:
    """What rows gain over their own noise controls; of runs without any, that there is none."""
    own = _of_tasks(results, found, NOISE)
    if not own:
        return "Transfer: no row has a noise control, by which one would tell what comes of the sources' ratings."
    sure = [gain for gain in own if gain.users_holm < 0.05 and gain.users.difference > 0]
    most = max(own, key=lambda gain: gain.users.difference)
    return (
        f"Transfer: {len(sure)} of {count_of(len(own), 'row')} with a noise control gain over it (p < .05, Holm's correction); "
        f"most does {most.line.name}, {signed(most.users.difference)} {metric(DECIDING)}."
    )


def _of_tasks(results: Results, found: Sequence[Gain], against: str) -> list[Gain]:
    """Differences from one control, each task in the ranking that it is summed up by, controls left out."""
    return [
        gain
        for gain in found
        if (gain.against, gain.measure) == (against, DECIDING)
        and not gain.line.row.control
        and gain.ranking == ranking_of(results, gain.task)
    ]


@mpl.rc_context({"text.parse_math": False})  # names are no formulas
def overview(results: Results) -> Picture:
    """NDCG@10 of the best rows of every task with its spread over seeds, with and without a guarantee."""
    tasks = list(results.lines)[:TASKS]
    rows = {task: _drawn(results, task) for task in tasks}
    columns = min(2, len(tasks))
    deep = -(-len(tasks) // columns)
    height = sum(max(len(rows[task]) for task in tasks[i * columns : (i + 1) * columns]) for i in range(deep))
    size = 5.2 * columns + 1.2, 0.24 * height + 0.9 * deep
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(h_pad=0.1))
    places = figure.subplots(deep, columns, squeeze=False).flat
    for axes, task in zip_longest(places, tasks):
        if task is None:
            axes.axis("off")
        else:
            _draw(axes, results, task, rows[task])
    return Picture.of(figure)


def _drawn(results: Results, task: str) -> list[Line]:
    lines = ranked(results, task, ranking_of(results, task))
    return ([line for line in lines if not line.row.control] or lines)[:ROWS]


def _draw(axes: Axes, results: Results, task: str, lines: Sequence[Line]) -> None:
    ranking = ranking_of(results, task)
    for place, line in enumerate(lines):
        private = line.guarantee is not None
        axes.errorbar(
            [line.mean(ranking, DECIDING)],
            [place],
            xerr=[_spread(line, ranking)],
            marker="o",
            markersize=5,
            color=COLOURS[0] if private else "0.45",
            markerfacecolor=COLOURS[0] if private else "white",
            capsize=2,
            linewidth=1,
        )
    axes.set_yticks(range(len(lines)), [shown(_label(line)) for line in lines], fontsize=8)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_xlabel(f"{metric(DECIDING)}, {RANKINGS[ranking]}; filled: with a guarantee", fontsize=8)
    axes.set_title(shown(results.benchmark["tasks"][task]["title"]), fontsize=9)
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(axis="x", color="0.9", linewidth=0.6)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _spread(line: Line, ranking: str) -> float:
    sd = line.sd(ranking, DECIDING)
    return sd if sd == sd else 0.0  # one seed has none


def _label(line: Line) -> str:
    return line.name if len(line.name) <= 44 else f"{line.name[:43]}…"
