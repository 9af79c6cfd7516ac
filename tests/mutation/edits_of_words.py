"""Slips in what commands say: nearest names, monitors, where data come from, how a report is made again; and in directions."""

from tests.mutation.edit import Edit, edits_of

COMMANDS, OF_COMMANDS = "zoo/commands", "tests/zoo/commands"

WORDS: tuple[Edit, ...] = (
    *edits_of(
        "zoo/runtime/arguments.py",
        ("tests/zoo/runtime/test_arguments.py",),
        ("a short form is an option", '"allow_abbrev": False', '"allow_abbrev": True'),
        ("what is lacking hides what is misspelt", 'if "required: " in message', 'if "lacking: " in message'),
        ("options of another command are offered", "if name in self._given)", "if name not in self._given)"),
        ("an option with its value is looked for whole", 'word.split("=")[0] for word', "word for word"),
        ("a refusal ends as if all were well", "self.exit(2, ", "self.exit(0, "),
        ("options stand with the command above", "{parser.prog}", "{self.prog}"),
    ),
    *edits_of(
        "zoo/runtime/suggestions.py",
        ("tests/zoo/runtime/test_suggestions.py",),
        ("one is many", "if count == 1 else", "if count == 0 else"),
        ("initials are no name", "= 0.6, 0.9", "= 0.6, 0.0"),
        ("everything looks alike", "= 0.6, 0.9", "= 0.0, 0.9"),
        (
            "what looks least alike stands first",
            "key=lambda name: -similarity[name]",
            "key=lambda name: similarity[name]",
        ),
        ("all names that look alike are listed", "found[:3]", "found"),
        ("a path is known by its last part", 'if own == word.lstrip("-") else 0.0', "if own else 0.0"),
    ),
    *edits_of(
        "zoo/runs/checks.py",
        ("tests/zoo/runs/test_checks.py",),
        ("a figure with ties against it is not known", 'watched.replace("/pessimistic/", "/")', "watched"),
        ("any callback may watch epochs", "(COUNTED if isinstance(callback, ModelCheckpoint) else ())", "COUNTED"),
        ("who can do without is refused", 'bool(getattr(callback, "strict", True))', "True"),
        ("of callbacks nobody asks what they log", "for one in (method, *others)):", "for one in (method,)):"),
        (
            "what a class above logs is forgotten",
            "for one in kind.__mro__ for name in vars",
            "for one in (kind,) for name in vars",
        ),
        ("figures that are not validated are awaited", "if not watching:", "if watching:"),
    ),
    *edits_of(
        f"{COMMANDS}/data/manual_downloads.csv",
        (f"{OF_COMMANDS}/data/test_fetch.py",),
        ("another's repository is named", "fengzhu1/GA-DTCDR", "fengzhu1/GA-DTCDS"),
        ("a licence is forgotten", "GPL-3.0; cite Zhu", "Cite Zhu"),
        (
            "another pair's repository is named",
            'kitchen,"https://github.com/DiMarzioBian/ABXI',
            'kitchen,"https://github.com/DiMarzioBian/ABXY',
        ),
    ),
    *edits_of(
        f"{COMMANDS}/data/manual_downloads.py",
        (f"{OF_COMMANDS}/data/test_fetch.py",),
        ("tables go into another folder", "$ZOO_DATA/{name} or", "$ZOO_DATA or"),
    ),
    *edits_of(
        "zoo/benchmark/report/files.py",
        (
            "tests/zoo/benchmark/report/test_command.py",
            "tests/zoo/benchmark/report/test_files.py",
            "tests/zoo/benchmark/report/test_page.py",
        ),
        ("a report names a folder of the machine", "out if not out.is_absolute() else", "out if out else"),
        ("the tasks that were asked for are not said", 'f" --task {shlex.quote(task)}"', '""'),
        (
            "numbers of users change from row to row",
            'pl.col("user_id", "item_id").cast(pl.String).rank("dense").cast(pl.Int32),',
            'pl.col("user_id", "item_id").cast(pl.String).rank("random").cast(pl.Int32),',
        ),
        ("another baseline is not said", "changed = results.baseline != (", "changed = results.baseline == ("),
        ("notes are left out", 'if path.is_file() else ""', 'if path.is_dir() else ""'),
        ("means stand in the place of seeds", "seeds_csv(results), ", "results_csv(results), "),
        ("a task is not written as its runs are called", "f'{slug(task)}/*'", "f'{task}/*'"),
    ),
    *edits_of(
        "zoo/data/directions.py",
        ("tests/zoo/data/test_directions.py",),
        ("frequent items count more", "counts**-item_damping", "counts**item_damping"),
        ("the mean is of rows of any length", "unit.mean(axis=0)", "kept.mean(axis=0)"),
        ("a step is decoded by as much as it is long", "np.linalg.pinv(own.T @ own)", "(own.T @ own)"),
        ("the weakest direction comes first", "np.argsort(-values)", "np.argsort(values)"),
        ("signs go by the largest number, not by its size", "np.abs(right).argmax(axis=1)", "right.argmax(axis=1)"),
        ("the nearest place has length one", "axis=1).max()), 1e-12)", "axis=1).min()), 1e-12)"),
    ),
)
