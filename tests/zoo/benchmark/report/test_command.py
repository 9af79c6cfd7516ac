"""The command: what it writes, what it refuses, and the page in a browser."""

import csv
import dataclasses
import shutil
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import matplotlib.image
import numpy as np
import polars as pl
import pytest
from scipy import stats

from tests.samples import binary
from tests.zoo.benchmark.report.fabricate import BARE, NOTES, SMALL, Facts, fabricate, facts_of, proved
from zoo import Plaintext
from zoo.__main__ import main as zoo_main
from zoo.benchmark.grid import Row
from zoo.benchmark.report import files
from zoo.benchmark.report.command import main
from zoo.benchmark.report.files import commands, gains_csv, results_csv, seeds_csv
from zoo.benchmark.report.paired_differences import NO_RELEASE, Gain
from zoo.benchmark.report.results import MEASURES, RANKINGS, Results
from zoo.benchmark.runs import RUN_FILE
from zoo.privacy.accounting.relation import Relation

pytestmark = pytest.mark.thorough

FIRST = "cold/pricdr/jlt-eps-1/seed-0"
NODE = shutil.which("node")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished benchmark of three rows, in the folder that the command is run in."""
    monkeypatch.chdir(tmp_path)
    return fabricate(tmp_path, SMALL)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same without anything to draw, which takes most of the time."""
    monkeypatch.chdir(tmp_path)
    return fabricate(tmp_path, BARE)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def refusal(*arguments: object) -> str:
    """What the command ends with."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert isinstance(ended.value.code, str), "which Python prints and ends with code 1"
    assert "\n" not in ended.value.code
    return ended.value.code


def test_every_file_is_written_and_named(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["runs", "--out", "docs/out"])
    found = contents(small.parent / "docs" / "out")
    [svg] = [name for name in found if name.endswith(".svg") and name != "overview.svg"]
    names = ["cases.parquet", "results.csv", "seeds.csv", "gains.csv", "report.json", "overview.svg", svg]
    names += ["README.md", "report.html"]
    assert found.keys() == set(names)
    assert all(found.values()), "and none is empty"
    assert capsys.readouterr().out.split() == [f"docs/out/{name}" for name in names]


def test_a_second_run_gives_the_same_bytes(small: Path) -> None:
    for out in ("one", "two"):
        main(["runs", "--out", out])
    one, two = (contents(small.parent / out) for out in ("one", "two"))
    assert {name: text.replace(b"--out two", b"--out one") for name, text in two.items()} == one


def test_a_report_names_files_keeps_notes_and_reads_runs_alone(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, before = bare.parent / "out[final]", contents(bare)
    out.mkdir()
    (out / "notes.md").write_text(NOTES, encoding="utf-8")
    main([str(bare), "--out", str(out)])
    assert contents(bare) == before
    said = capsys.readouterr().out
    assert f"{out}/report.html" in said.split()
    assert "finished" not in said, "all is"
    assert (out / "notes.md").read_text(encoding="utf-8") == NOTES
    page, source = ((out / name).read_text(encoding="utf-8") for name in ("README.md", "report.html"))
    assert NOTES in page
    assert "<li>first entry</li>" in source
    assert "python -m zoo report runs/benchmarks/bench --out report/\n" in page
    assert str(bare.parent) not in page + source, "no folder of this machine"


def test_a_task_alone_is_reported_as_in_the_whole(report: Path, runs: Path, tmp_path: Path) -> None:
    main([str(runs), "--task", "cold", "--out", str(tmp_path / "cold")])
    for name in ("results.csv", "seeds.csv", "gains.csv"):
        with (report / name).open() as whole, (tmp_path / "cold" / name).open() as part:
            expected = [row for row in csv.DictReader(whole) if row["task"] == "cold"]
            assert list(csv.DictReader(part)) == expected
            assert expected
    page = (tmp_path / "cold" / "README.md").read_text(encoding="utf-8")
    assert "--only 'cold/*'\npython -m zoo report runs/benchmarks/" in page
    assert " --task cold --out" in page
    assert "Book -> Music" not in page


def test_a_task_is_run_by_the_name_of_its_cells_and_reported_by_its_own(results: Results) -> None:
    ran, reported = commands(results, Path("out"), ["Cold start"])
    assert ran.endswith(" --only 'cold-start/*'")
    assert reported.endswith(" --task 'Cold start' --out out")
    foreign = dataclasses.replace(results, benchmark=results.benchmark | {"name": "a b", "config": "g.yaml; ls"})
    ran, reported = commands(foreign, Path("out"))
    assert ran.endswith("--config 'g.yaml; ls'")
    assert "runs/benchmarks/'a b'" in reported


def test_cells_of_other_tasks_are_not_counted(results: Results) -> None:
    part = results.only_tasks(["cold"])
    assert part.num_runs == sum(name.startswith("cold/") for name in results.benchmark["cells"]) < results.num_runs
    assert part.num_finished == sum(len(line.runs) for line in results.lines["cold"]) < results.num_finished
    assert part.only_tasks(["cold"]).lines == {"cold": results.lines["cold"]}


def test_a_task_that_is_not_there_is_refused(bare: Path) -> None:
    for name, hint in (("colt", " Did you mean cold?"), ("zzz", "")):
        said = f"ResultsError: Task '{name}' has no finished run.{hint} Finished tasks: cold."
        assert refusal("runs", "--task", name) == said


def test_a_report_that_breaks_off_leaves_the_last_one_whole(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main(["runs", "--out", "out"])
    before = contents(bare.parent / "out")
    write = Path.write_text

    def broken(path: Path, text: str, encoding: str) -> int:
        if "report.html" in path.name:
            write(path, text[: len(text) // 2], encoding=encoding)
            raise OSError("no space left")
        return write(path, text, encoding=encoding)

    monkeypatch.setattr(Path, "write_text", broken)
    assert refusal("runs", "--out", "out") == "OSError: no space left"
    after = contents(bare.parent / "out")
    assert {name: after[name] for name in before} == before


def test_what_is_unfinished_is_said(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (bare / "cold/pricdr/plaintext/seed-2" / RUN_FILE).unlink()
    main(["runs", "--out", "out"])
    assert capsys.readouterr().out.endswith("\n6 of 7 runs are finished.\n")
    assert "\n6 of 7 runs are finished." in (bare.parent / "out" / "README.md").read_text(encoding="utf-8")


def test_results_csv_has_a_line_for_every_row(results: Results, report: Path) -> None:
    text = (report / "results.csv").read_text(encoding="utf-8")
    assert text == results_csv(results)
    rows = list(csv.DictReader(text.splitlines()))
    lines = [line for lines in results.lines.values() for line in lines]
    assert len(rows) == len(lines)
    for row, line in zip(rows, lines, strict=True):
        assert (row["task"], row["system"], row["release"]) == (line.row.task, line.row.system, line.row.release)
        assert int(row["seeds"]) == len(line.runs)
        assert int(row["cases"]) == 60
        for ranking in RANKINGS:
            for measure in MEASURES:
                assert float(row[f"{ranking}/{measure}"]) == pytest.approx(line.mean(ranking, measure), abs=5.1e-7)
                spread = row[f"{ranking}/{measure} sd"]
                assert (spread == "") == (len(line.runs) == 1)
                assert spread == "" or float(spread) == pytest.approx(line.sd(ranking, measure), abs=5.1e-7)
        if line.guarantee is None:
            assert row["guarantee"] == ("none" if line.row.release else "no release")
            assert row["unit"] == row["relation"] == row["delta"] == row["epsilon"] == ""
        else:
            assert row["guarantee"] == "proved"
            stated = (row["unit"], row["relation"], float(row["delta"]), float(row["epsilon"]))
            guarantee = line.guarantee
            assert stated == (guarantee.unit, guarantee.relation, guarantee.delta, line.epsilon)


def test_seeds_csv_has_every_run_and_means_come_of_it(results: Results, report: Path) -> None:
    text = (report / "seeds.csv").read_text(encoding="utf-8")
    assert text == seeds_csv(results)
    rows = list(csv.DictReader(text.splitlines()))
    lines = [line for lines in results.lines.values() for line in lines]
    assert len(rows) == sum(len(line.runs) for line in lines)
    for line in lines:
        name = line.row.task, line.row.system, line.row.release, line.row.control
        own = [row for row in rows if (row["task"], row["system"], row["release"], row["control"]) == name]
        assert [int(row["seed"]) for row in own] == [run.seed for run in line.runs]
        assert {row["cases"] for row in own} == {"60"}
        for figure in (f"{ranking}/{measure}" for ranking in RANKINGS for measure in MEASURES):
            found = [float(row[figure]) for row in own]
            assert sum(found) / len(found) == pytest.approx(line.mean(*figure.split("/")), abs=1e-6)
            assert found[0] == pytest.approx(line.runs[0].figure(*figure.split("/")), abs=5.1e-7)


def test_a_p_value_of_the_page_follows_from_file_of_cases(report: Path, found: list[Gain], results: Results) -> None:
    cases = pl.read_parquet(report / "cases.parquet")
    assert len(cases) == sum(len(run.cases) for line in results.rows for run in line.runs)
    assert (report / "cases.parquet").stat().st_size < 10**6
    row, against = "PriCDR, JLT eps 8", "PriCDR, Nothing"
    users = (
        cases.filter(pl.col("task") == "cold")
        .group_by("row", "seed", "user_id")
        .agg(pl.col("full/ndcg@10").mean())
        .pivot("row", index=["seed", "user_id"], values="full/ndcg@10")
        .group_by("user_id")
        .agg((pl.col(row) - pl.col(against)).mean().alias("difference"))
    )
    test = stats.ttest_1samp(users["difference"].to_numpy(), 0.0)
    [gain] = [g for g in found if (g.task, g.line.name, g.ranking, g.measure) == ("cold", row, "full", "ndcg@10")
              and g.against == NO_RELEASE]  # fmt: skip
    assert gain.users.pairs == len(users)
    assert gain.users.p_value == pytest.approx(float(test.pvalue), rel=1e-4)
    assert f"| {row} | {gain.users.difference:+.4f} [" in (report / "README.md").read_text(encoding="utf-8")


def test_a_large_file_of_cases_is_left_out_and_the_page_says_so(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main(["runs", "--out", "out"])
    monkeypatch.setattr(files, "MOST_BYTES", 1)
    main(["runs", "--out", "out"])
    assert not (bare.parent / "out" / "cases.parquet").exists()
    assert "- Cases: cases.parquet is left out, " in (bare.parent / "out" / "README.md").read_text(encoding="utf-8")


def test_results_csv_has_the_cost_that_estimates_are_made_of(report: Path) -> None:
    rows = list(csv.DictReader((report / "results.csv").read_text(encoding="utf-8").splitlines()))
    [searched] = [row for row in rows if row["system"] == "Searched"]
    assert (searched["cell_seconds"], searched["trials"], searched["bytes_released"]) == ("110.0", "7", "1000")
    [ease] = [row for row in rows if (row["system"], row["task"]) == ("EASE", "cold")]
    assert (ease["ranked_by_item_counts"], ease["trials"], ease["method"]) == ("60", "0", "EASE")


def test_gains_csv_has_a_line_for_every_difference(found: list[Gain], report: Path) -> None:
    text = (report / "gains.csv").read_text(encoding="utf-8")
    assert text == gains_csv(found)
    rows = list(csv.DictReader(text.splitlines()))
    assert len(rows) == len(found)
    for row, gain in zip(rows, found, strict=True):
        assert (row["task"], row["row"], row["against"]) == (gain.task, gain.line.name, gain.against)
        assert row["figure"] == f"{gain.ranking}/{gain.measure}"
        assert float(row["difference"]) == pytest.approx(gain.users.difference, abs=5.1e-7)
        assert float(row["low"]) <= float(row["difference"]) <= float(row["high"])
        assert float(row["p_users"]) == pytest.approx(gain.users.p_value, rel=6e-3)
        assert float(row["p_users_holm"]) == pytest.approx(gain.users_holm, rel=6e-3)
        assert (row["p_seeds_holm"] == row["seeds"] == "") == (gain.seeds is None)
        assert (int(row["users"]), int(row["users_better"])) == (gain.users.pairs, gain.users.better)
        if gain.seeds is not None and gain.seeds_holm is not None:
            assert float(row["p_seeds_holm"]) == pytest.approx(gain.seeds_holm, rel=6e-3)
            assert (int(row["seeds"]), int(row["seeds_better"])) == (gain.seeds.pairs, gain.seeds.better)


def test_no_difference_is_an_empty_file() -> None:
    assert gains_csv([]) == ""


def test_a_folder_without_a_finished_benchmark_is_refused(tmp_path: Path) -> None:
    said = refusal(tmp_path, "--out", tmp_path / "out")
    assert said.startswith(
        f"ResultsError: {tmp_path} has no benchmark.json. Run `python -m zoo benchmark --config FILE`, "
    )
    assert "Run `python -m zoo benchmark --config FILE`" in said
    assert not (tmp_path / "out").exists()
    runs = fabricate(tmp_path, SMALL, lambda row, seed: None)
    said = refusal(runs, "--out", tmp_path / "out")
    assert said.endswith("has no finished run. Run: python -m zoo benchmark --config bench.yaml")
    assert not (tmp_path / "out").exists()


def test_a_row_whose_releases_protect_different_things_is_shown_without_epsilon(tmp_path: Path) -> None:
    def facts(row: Row, seed: int) -> Facts | None:
        made = facts_of(row, seed)
        if made is not None and row.release == "JLT eps 1":
            relation = Relation.REPLACE_ONE_USER if seed else Relation.CHANGE_ONE_RATING
            made.records = {"book": proved(relation=relation)}
        return made

    main([str(fabricate(tmp_path, SMALL, facts)), "--out", str(tmp_path / "out")])
    page = (tmp_path / "out/README.md").read_text(encoding="utf-8")
    assert "none (the relations differ (" in page


def test_a_file_in_the_place_of_the_folder_is_refused(bare: Path) -> None:
    (bare.parent / "out").write_text("mine", encoding="utf-8")
    assert refusal("runs", "--out", "out").startswith("FileExistsError: ")
    assert (bare.parent / "out").read_text(encoding="utf-8") == "mine"


def written_over(text: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(text)


#: What a file is changed to, and what is said.
UNREADABLE: list[tuple[str, Callable[[Path], object], str]] = [
    (f"{FIRST}/metrics.json", written_over(b"{"), "or one of its runs is unreadable (JSONDecodeError: "),
    (f"{FIRST}/test_cases.parquet", written_over(b"PAR1"), "unreadable"),
    *((name, Path.unlink, name) for name in (f"{FIRST}/metrics.json", f"{FIRST}/test_cases.parquet")),
    (f"{FIRST}/privacy.json", Path.unlink, f"{FIRST}/privacy.json"),
]


def test_whatever_cannot_be_read_is_refused(small: Path) -> None:
    for name, change, said in UNREADABLE:
        before = (small / name).read_bytes()
        change(small / name)
        assert said in refusal("runs"), (name, said)
        (small / name).write_bytes(before)


def test_the_front_hands_over(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["zoo", "report", "runs"])
    zoo_main()
    assert (bare.parent / "report" / "report.html").is_file(), "the folder that is written unless another is named"


@pytest.mark.parametrize(("arguments", "message"), [([], "arguments are required: RUNS"), (["a", "--to", "b"], "--to")])
def test_wrong_arguments_are_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_help_says_what_is_written(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["zoo", "report", "--help"])
    with pytest.raises(SystemExit) as ended:
        zoo_main()
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith("usage: python -m zoo report [-h] [--baseline NAME] [--task NAME]")
    assert all(
        name in said for name in ("README.md", "results.csv", "seeds.csv", "gains.csv", "report.html", "notes.md")
    )


def test_neither_a_report_nor_the_page_of_a_release_imports_lightning(bare: Path) -> None:
    """And in the same process, which would take seconds again: a refusal ends with code 1 and no traceback."""
    Plaintext().publish(binary(), "books").save(bare.parent / "release")
    code = (
        "import sys; from zoo.__main__ import main\n"
        "for sys.argv in (['zoo', 'report', 'runs'], ['zoo', 'privacy', 'show', 'release']):\n"
        "    main()\n"
        "    print('HEAVY', [m for m in ('pytorch_lightning', 'lightning_fabric', 'wandb') if m in sys.modules])\n"
        "    print('TORCH', 'torch' in sys.modules)\n"
        "sys.argv = ['zoo', 'report', 'absent']; main()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=False)
    said = [line for line in ended.stdout.splitlines() if line.startswith(("HEAVY", "TORCH"))]
    assert said == ["HEAVY []", "TORCH False", "HEAVY []", "TORCH True"]
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("ResultsError: absent has no benchmark.json")
    assert "Traceback" not in ended.stderr


TABLE = """
const cells = [["b", "0.2000 ±0.1"], ["a", "**-**"], ["c", "<.001"], ["d", "1,234"], ["e", "-"]];
const made = cells.map(texts => ({cells: texts.map(textContent => ({textContent}))}));
const body = {rows: made, append(...rows) { this.rows = rows; }};
const heads = ["words", ""].map((name, cellIndex) => ({
  cellIndex, attributes: {}, classList: {contains: asked => asked === name},
  getAttribute(key) { return this.attributes[key] ?? null; },
  setAttribute(key, value) { this.attributes[key] = value; }, removeAttribute(key) { delete this.attributes[key]; },
  closest: () => ({tBodies: [body]}),
}));
heads.forEach(head => { head.parentNode = {cells: heads}; });
const buttons = heads.map(parentNode => ({parentNode, addEventListener(_, click) { this.click = click; }}));
globalThis.document = {querySelectorAll: () => buttons};
"""
SHOW = "console.log(body.rows.map(row => row.cells[0].textContent).join(''), heads[%d].getAttribute('aria-sort'));"


@pytest.mark.skipif(NODE is None, reason="no node on PATH")
def test_a_click_on_a_head_sorts_and_a_second_one_turns_it_round(report: Path) -> None:
    page = (report / "report.html").read_text(encoding="utf-8")
    script = page.split("<script>")[1].split("</script>")[0]
    clicks = "".join(f"buttons[{column}].click();{SHOW % column}" for column in (1, 1, 0, 0, 1))
    done = subprocess.run([str(NODE), "-"], input=TABLE + script + clicks, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        *("dbcae descending", "cbdae ascending"),  # a dash is last, whichever way
        *("abcde ascending", "edcba descending", "dbcea descending"),
    ]


class Shown(HTMLParser):
    """What a browser has made of the page."""

    def __init__(self, dom: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.feed(dom)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attrs)
        self.ids += [given["id"] or ""] if "id" in given else []
        self.links += [given["href"] or ""] if tag == "a" else []


@pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome on PATH")
def test_a_browser_shows_the_page(results: Results, report: Path, tmp_path: Path) -> None:
    options = [
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
        *("--disable-background-networking", "--disable-component-update", "--host-resolver-rules=MAP * ~NOTFOUND"),
        *(f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1200,1600"),
        *(f"--screenshot={tmp_path / 'page.png'}", "--dump-dom", (report / "report.html").as_uri()),
    ]
    command = [str(BROWSER), *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    shown = Shown(ended.stdout)
    written = Shown((report / "report.html").read_text(encoding="utf-8"))
    assert [shown.tags.count(tag) for tag in ("table", "tr", "td", "svg", "h2")] == [
        written.tags.count(tag) for tag in ("table", "tr", "td", "svg", "h2")
    ]
    assert shown.tags.count("table") == written.tags.count("table") > 20
    assert shown.tags.count("svg") == 5
    assert len(shown.ids) == len(set(shown.ids)) == len(written.ids)
    own = [link.removeprefix("#") for link in shown.links if link.startswith("#")]
    assert own == list(results.lines)
    assert set(own) <= set(shown.ids)
    picture = matplotlib.image.imread(tmp_path / "page.png")[..., :3]
    assert picture.shape[:2] == (1600, 1200)
    pixels = np.round(picture.reshape(-1, 3) * 255).astype(int)
    assert len(np.unique(pixels, axis=0)) > 50
    assert 0.5 < (pixels == 255).all(axis=1).mean() < 0.99, "a white page with something on it"
