"""``python -m zoo fit``, ``validate``, ``test``, ``predict`` and ``publish``: run the command that ``sys.argv`` holds."""

import os
import sys

from zoo.runs.cli import ZooCLI, import_names
from zoo.runs.parser_messages import in_a_sentence
from zoo.runs.processes import let_the_first_speak
from zoo.runs.resume import INTERRUPTED
from zoo.runs.trainer import quietly


def main() -> None:
    """Run the command; a refusal ends with its message, and with ``ZOO_TRACEBACK=1`` its traceback."""
    import_names()
    try:
        with quietly():
            ZooCLI()
    except KeyboardInterrupt:  # before there is a run
        sys.stderr.write("Interrupted before the training began.\n")
        sys.exit(INTERRUPTED)
    except Exception as error:
        if os.environ.get("ZOO_TRACEBACK") or not (said := in_a_sentence(error)):
            raise
        let_the_first_speak()
        sys.exit(said)
