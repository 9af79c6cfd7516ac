"""Callbacks: they add, log, count and stop; leaving one out never costs a guarantee."""

from callbacks.attention_figure import AttentionFigure
from callbacks.best_checkpoint import BestCheckpoint
from callbacks.boundary_ledger import BoundaryLedger
from callbacks.case_writer import CaseWriter
from callbacks.compiled_step import CompiledStep
from callbacks.energy import Energy
from callbacks.gan_stabilizer import GANStabilizer
from callbacks.privacy_budget import PrivacyBudget
from callbacks.recommendation_writer import RecommendationWriter
from callbacks.robustness_conductor import RobustnessConductor
from callbacks.run_report import RunReport
from callbacks.save_experiment import SaveExperiment
from callbacks.trackers import Trackers

__all__ = [
    "AttentionFigure", "BestCheckpoint", "BoundaryLedger", "CaseWriter", "CompiledStep", "Energy", "GANStabilizer",
    "PrivacyBudget", "RecommendationWriter", "RobustnessConductor", "RunReport", "SaveExperiment", "Trackers",
]  # fmt: skip
