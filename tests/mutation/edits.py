"""Slips that the suite must notice: a wrong sign, a forgotten root, a mask the wrong way round, a guarantee that is too good."""

from tests.mutation.edit import Edit
from tests.mutation.edits_of_attacks import ATTACKS
from tests.mutation.edits_of_batches import BATCHES
from tests.mutation.edits_of_blocks import BLOCKS
from tests.mutation.edits_of_callbacks import CALLBACKS
from tests.mutation.edits_of_conclusions import CONCLUSIONS
from tests.mutation.edits_of_data import DATA
from tests.mutation.edits_of_datamodules import DATAMODULES
from tests.mutation.edits_of_encryption import ENCRYPTION
from tests.mutation.edits_of_ensembles import ENSEMBLES
from tests.mutation.edits_of_evaluation import EVALUATION
from tests.mutation.edits_of_federated import CLIENTS_AND_SERVER, PRIVATE_ROUNDS
from tests.mutation.edits_of_guarantees import GUARANTEES
from tests.mutation.edits_of_mechanisms import MECHANISMS
from tests.mutation.edits_of_methods import METHODS
from tests.mutation.edits_of_others import OTHERS
from tests.mutation.edits_of_processes import PROCESSES
from tests.mutation.edits_of_rankings import RANKINGS
from tests.mutation.edits_of_records import RECORDS
from tests.mutation.edits_of_runs import RUNS
from tests.mutation.edits_of_splits import SPLITS
from tests.mutation.edits_of_transfer import TRANSFER
from tests.mutation.edits_of_words import WORDS

EDITS: tuple[Edit, ...] = (
    *GUARANTEES,
    *MECHANISMS,
    *RECORDS,
    *ENCRYPTION,
    *METHODS,
    *BLOCKS,
    *ENSEMBLES,
    *DATA,
    *RUNS,
    *OTHERS,
    *PROCESSES,
    *TRANSFER,
    *CLIENTS_AND_SERVER,
    *PRIVATE_ROUNDS,
    *ATTACKS,
    *WORDS,
    *RANKINGS,
    *SPLITS,
    *DATAMODULES,
    *BATCHES,
    *EVALUATION,
    *CALLBACKS,
    *CONCLUSIONS,
)
