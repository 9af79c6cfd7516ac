"""Load a run or a bundle, whichever a folder holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from datamodules import CrossDomainDataModule
from zoo.runs.bundle import BUNDLE, load_bundle
from zoo.runs.loaded import load_run
from zoo.runs.trained import Trained


def load(
    path: Path | str,
    *,
    data: CrossDomainDataModule | None = None,
    releases: Mapping[str, Path | str] | None = None,
) -> Trained:
    """Load a run's best checkpoint, or a bundle, to recommend with it.

    A run is its folder, wherever it was moved or copied; what it published lies in it. Its ratings are read again, from where
    its ``config.yaml`` says. No file of a run or of a bundle has anything imported: the classes that it names are those of the
    zoo, or of packages that you have imported before.

    Args:
        path: Folder of a run or of a bundle.
        data: The target's data, where they are not to be found as the run's config says; for a bundle where it needs any.
        releases: Folder of each source's release, where it does not lie in the run or as the config says.

    Returns:
        A method that recommends.

    Raises:
        ReleaseMismatchError: The data or a release are not those that it was trained on.
        UsageError: It is neither a run nor a bundle, or another version's, or names a class of a package that is not imported.
    """
    folder = Path(path)
    if (folder / BUNDLE).is_file():
        return load_bundle(folder, data, releases)
    return load_run(folder, data, releases)
