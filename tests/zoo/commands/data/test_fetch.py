"""Fetching: a folder first, then hosts in their order, nothing but the file that is known, and words where none gives it."""

import gzip
import hashlib
import io
import re
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from datamodules import Douban, Files, Restaurant
from datamodules.amazon import AMAZON
from datamodules.files import KNOWN_FILES
from datamodules.recipe import Recipe
from zoo.commands.data.command import main
from zoo.commands.data.fetch import KNOWN, registered
from zoo.commands.data.manual_downloads import MANUAL_DOWNLOADS
from zoo.data import text_table


class Quiet(SimpleHTTPRequestHandler):
    """A host that says nothing of what it is asked."""

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def archive() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as made:
        made.writestr("them/u.data", "1\t2\t3\t4\n5\t6\t3\t8\n")
    return packed.getvalue()


ARCHIVE = archive()
CIAO = KNOWN_FILES["ciao"]["cat01"].source
TABLE = b"user_id,item_id,rating,timestamp\n1,2,3,4\n5,6,3,8\n"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "them.zip").write_bytes(ARCHIVE)
    (tmp_path / "host" / "changed.zip").write_bytes(ARCHIVE[:-1])
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "host")))
    thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.01))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def registry(folder: Path, *urls: str) -> Path:
    published = {
        "urls": list(urls),
        "sha256": hashlib.sha256(ARCHIVE).hexdigest(),
        "size": len(ARCHIVE),
        "tables": {"ratings.csv.gz": {"member": "them/u.data", "separator": "\t"}},
    }
    path = folder / "registry.yaml"
    path.write_text(yaml.safe_dump({"theirs": {"licence": "ask them", "files": {"them.zip": published}}}))
    return path


def fetched(folder: Path, *urls: str, offline: Path | None = None) -> bytes:
    given = ["--registry", str(registry(folder, *urls)), "--root", str(folder / "data")]
    main(["fetch", "theirs", *given, *(["--offline", str(offline)] if offline else [])])
    return gzip.decompress((folder / "data" / "theirs" / "ratings.csv.gz").read_bytes())


def test_the_second_host_gives_what_the_first_has_not(
    host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetched(tmp_path, f"{host}/gone.zip", f"{host}/them.zip") == TABLE
    assert "Terms of them.zip: ask them" in capsys.readouterr().err
    before = (tmp_path / "data" / "theirs" / "ratings.csv.gz").stat().st_mtime_ns
    assert fetched(tmp_path, f"{host}/gone.zip") == TABLE, "what is there is not asked for again"
    assert (tmp_path / "data" / "theirs" / "ratings.csv.gz").stat().st_mtime_ns == before
    assert "Exists: " in capsys.readouterr().out


def test_an_archive_that_unpacks_to_too_much_is_refused(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_table, "MOST_TIMES", 0)
    monkeypatch.setattr(text_table, "ALWAYS", 10)
    with pytest.raises(SystemExit, match="unpacks to more than 10 bytes"):
        fetched(tmp_path, f"{host}/them.zip")
    assert not [*(tmp_path / "data").rglob("*.gz")]


def test_a_recipe_is_fetched_as_it_is_and_read(host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as made:
        made.writestr("ml-1m/ratings.dat", "1::2::5::978300760\n5::6::3::978302109\n")
    (tmp_path / "host" / "ml-1m.zip").write_bytes(content.getvalue())
    recipe = Recipe.named("movielens-1m")
    published = recipe.files["ml-1m.zip"] | {
        "urls": [f"{host}/ml-1m.zip"],
        "sha256": hashlib.sha256(content.getvalue()).hexdigest(),
        "size": None,
    }
    monkeypatch.setattr(Recipe, "named", lambda _: replace(recipe, files={"ml-1m.zip": published}))
    main(["fetch", "movielens-1m", "--root", str(tmp_path)])
    data = Files("x", "ratings", root=tmp_path / "movielens-1m", recipe="movielens-1m")
    assert data.read("ratings").rows() == [("1", "2", 5.0, 978300760), ("5", "6", 3.0, 978302109)]


def test_a_recipe_without_a_known_file_says_where_it_is() -> None:
    for name in Recipe.names():
        if Recipe.named(name).files:
            assert registered(name).licence == Recipe.named(name).licence
        else:
            with pytest.raises(ValueError, match=rf"{name} must be downloaded manually.*recipe {name}"):
                registered(name)


def test_a_folder_comes_before_every_host(tmp_path: Path) -> None:
    (tmp_path / "them.zip").write_bytes(ARCHIVE)
    assert fetched(tmp_path, "http://127.0.0.1:1/them.zip", offline=tmp_path) == TABLE


def test_another_file_is_refused_and_nothing_written(host: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"changed.zip has .* them.zip must have"):
        fetched(tmp_path, f"{host}/changed.zip")
    (tmp_path / "them.zip").write_bytes(ARCHIVE + b"x")
    with pytest.raises(SystemExit, match=r"them.zip must have"):
        fetched(tmp_path, f"{host}/them.zip", offline=tmp_path)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("old", ["them.zip:", "ratings.csv.gz:"])
@pytest.mark.parametrize("new", ["../x", "a/x", "/x", "..", ".", ""])
def test_a_registry_cannot_name_a_file_outside_its_folder(old: str, new: str, tmp_path: Path) -> None:
    path = registry(tmp_path, "http://127.0.0.1:1/gone.zip")
    path.write_text(path.read_text().replace(f" {old}", f" '{new}':"))
    with pytest.raises(ValueError, match=rf"^A file in {path} is '{new}'\. Allowed: a name without a folder"):
        registered("theirs", path)


def test_where_no_host_answers_it_says_what_to_do(host: str, tmp_path: Path) -> None:
    said = r"No host has them.zip: .*gone.zip \(HTTPError\); http://127.0.0.1:1/x \(ConnectionError\).*SHA-256 .*--offline FOLDER"
    with pytest.raises(SystemExit, match=said):
        fetched(tmp_path, f"{host}/gone.zip", "http://127.0.0.1:1/x")


def test_an_unknown_data_set_names_the_nearest() -> None:
    with pytest.raises(
        ValueError,
        match=r"Unknown data set 'ml100k'\. Did you mean ml-100k\? Known: ml-100k, amazon-2014, .*; manual: rc",
    ):
        registered("ml100k")
    (movielens,) = registered("ml-100k").files.values()
    assert (movielens.size, len(movielens.sha256)) == (4_924_029, 64)


def test_every_data_set_that_a_datamodule_reads_is_fetched_or_said_where_to_get() -> None:
    read = {"ml-100k", "rc", "douban", "douban-book-music", "ciao", *AMAZON}
    assert {*KNOWN, *MANUAL_DOWNLOADS} == read
    assert not {*KNOWN} & {*MANUAL_DOWNLOADS}
    for name, said in MANUAL_DOWNLOADS.items():
        assert re.search(r"https://\S+", said)
        assert re.search("licence|GPL|MIT|terms|citation", said), name
        with pytest.raises(ValueError, match=f"{name} must be downloaded manually"):
            registered(name)
    for name, domains in AMAZON.items():  # the same origins as the datamodule says when a file is missing
        origins = {re.match(r"github\.com/[^,/]+/[^,/]+", known.source)[0] for known in domains.values()}  # type: ignore[index]
        assert name == "amazon-many" or all(origin in MANUAL_DOWNLOADS[name] for origin in origins)
        assert name != "amazon-many" or (len(origins) == 8 and MANUAL_DOWNLOADS[name].startswith("Eight repositories"))


@pytest.mark.parametrize(
    ("name", "here", "said"),
    [
        ("douban", "/GA-DTCDR (", Douban.where_to_get_it),
        ("douban-book-music", "/PriCDR (", Douban.where_to_get_it),
        ("rc", "https://archive.ics.uci.edu (dataset 232", Restaurant.where_to_get_it),
        ("ciao", re.sub(r", .*", " (", CIAO), f"{CIAO} ("),
    ],
)
def test_what_is_got_by_hand_comes_from_where_its_datamodule_says(name: str, here: str, said: str) -> None:
    assert here in MANUAL_DOWNLOADS[name]
    assert here.strip("/ (") in said
    with pytest.raises(ValueError, match=rf"into \$ZOO_DATA/{name} or data/{name}\."):
        registered(name)


def test_the_help_of_fetch_says_what_is_not_fetched(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["fetch", "--help"])
    said = " ".join(capsys.readouterr().out.replace("-\n", "-").split())
    assert all(name in said for name in MANUAL_DOWNLOADS)
