"""Puts the configs into the package where it is built. Everything else is said in pyproject.toml.

They stay a folder of their own in the repository, since they are no code, and no setting of setuptools takes a folder beside the
packages for data of one: `package-dir` maps packages that are listed by name, `data-files` knows no folders of folders.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class WithConfigs(build_py):
    """Copies ``configs`` to ``zoo/configs`` of what is built; an editable installation reads those of the clone."""

    def run(self) -> None:
        """Build, then copy."""
        super().run()
        if not self.editable_mode:
            shutil.copytree("configs", Path(self.build_lib, "zoo", "configs"), dirs_exist_ok=True)


setup(cmdclass={"build_py": WithConfigs})
