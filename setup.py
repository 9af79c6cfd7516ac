"""Copies the configs into the built package; everything else is in pyproject.toml.

`configs/` stays a top-level folder, and setuptools has no setting for package data outside of packages.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class WithConfigs(build_py):
    """Copies ``configs`` to ``zoo/configs`` of the build; an editable installation reads the clone."""

    def run(self) -> None:
        """Build and copy."""
        super().run()
        if not self.editable_mode:
            shutil.copytree("configs", Path(self.build_lib, "zoo", "configs"), dirs_exist_ok=True)


setup(cmdclass={"build_py": WithConfigs})
