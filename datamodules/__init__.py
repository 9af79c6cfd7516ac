"""Datamodules: one party's view of the data, with what other parties released."""

from datamodules.amazon import Amazon
from datamodules.base import CrossDomainDataModule
from datamodules.ciao import Ciao
from datamodules.douban import Douban
from datamodules.files import Files
from datamodules.frames import Frames
from datamodules.low_rank import LowRank
from datamodules.movielens import MovieLens100K
from datamodules.protocol import Evaluation, Filters
from datamodules.restaurant import Restaurant
from datamodules.synthetic import Synthetic

__all__ = [
    "Amazon",
    "Ciao",
    "CrossDomainDataModule",
    "Douban",
    "Evaluation",
    "Files",
    "Filters",
    "Frames",
    "LowRank",
    "MovieLens100K",
    "Restaurant",
    "Synthetic",
]
