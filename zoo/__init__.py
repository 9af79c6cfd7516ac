"""CDR Zoo: privacy-preserving cross-domain recommendation.

The imports below are the list of what the zoo exports: to add a method or a publisher, add its line. They are read, not run. Each
module is imported when its name is first asked for, so that ``import zoo`` and a bare ``--help`` stay quick.
"""

from typing import TYPE_CHECKING, Any

from zoo.runtime import exports as _exports
from zoo.runtime import renamed as _renamed  # noqa: F401  old names of modules
from zoo.runtime.exports import METHODS as METHODS
from zoo.runtime.exports import PERTURBATIONS as PERTURBATIONS
from zoo.runtime.exports import PUBLISHERS as PUBLISHERS
from zoo.runtime.exports import VERSION

if TYPE_CHECKING:
    from zoo.data.ratings import Ratings as Ratings
    from zoo.methods.base import Recommender as Recommender
    from zoo.methods.bitgcf import BiTGCF as BiTGCF
    from zoo.methods.bpr import BPR as BPR
    from zoo.methods.bridge import Bridge as Bridge
    from zoo.methods.cfgan import CFGAN as CFGAN
    from zoo.methods.conet import CoNet as CoNet
    from zoo.methods.darec import DARec as DARec
    from zoo.methods.ddtcdr import DDTCDR as DDTCDR
    from zoo.methods.dmf import DMF as DMF
    from zoo.methods.ease import EASE as EASE
    from zoo.methods.emcdr import EMCDR as EMCDR
    from zoo.methods.ensemble import Ensemble as Ensemble
    from zoo.methods.etl import ETL as ETL
    from zoo.methods.fedcdr import FedCDR as FedCDR
    from zoo.methods.fedct import FedCT as FedCT
    from zoo.methods.fedgcdr import FedGCDR as FedGCDR
    from zoo.methods.fedgnn import FedGNN as FedGNN
    from zoo.methods.ganmf import GANMF as GANMF
    from zoo.methods.ials import IALS as IALS
    from zoo.methods.light_gcn import LightGCN as LightGCN
    from zoo.methods.low_rank import LowRank as LowRank
    from zoo.methods.mult_vae import MultVAE as MultVAE
    from zoo.methods.neumf import NeuMF as NeuMF
    from zoo.methods.one_bit_mc.gradient_perturbation import GradientPerturbation as GradientPerturbation
    from zoo.methods.one_bit_mc.input_perturbation import InputPerturbation as InputPerturbation
    from zoo.methods.one_bit_mc.method import OneBitMC as OneBitMC
    from zoo.methods.one_bit_mc.objective_perturbation import ObjectivePerturbation as ObjectivePerturbation
    from zoo.methods.one_bit_mc.output_perturbation import OutputPerturbation as OutputPerturbation
    from zoo.methods.one_bit_mc.perturbation import Clear as Clear
    from zoo.methods.one_bit_mc.perturbation import Perturbation as Perturbation
    from zoo.methods.popularity import Popularity as Popularity
    from zoo.methods.ppgencdr import PPGenCDR as PPGenCDR
    from zoo.methods.pricdr import PriCDR as PriCDR
    from zoo.methods.pricdr_sym import PriCDRSym as PriCDRSym
    from zoo.methods.recent_popularity import RecentPopularity as RecentPopularity
    from zoo.methods.ridge import Ridge as Ridge
    from zoo.methods.slim import SLIM as SLIM
    from zoo.methods.sppg import SPPG as SPPG
    from zoo.methods.user_knn import UserKNN as UserKNN
    from zoo.publishers.base import Publisher as Publisher
    from zoo.publishers.bridge import BridgePublisher as BridgePublisher
    from zoo.publishers.controls import Noise as Noise
    from zoo.publishers.controls import Nothing as Nothing
    from zoo.publishers.controls import Partial as Partial
    from zoo.publishers.controls import Shuffled as Shuffled
    from zoo.publishers.controls import Thinned as Thinned
    from zoo.publishers.embeddings import EmbeddingPublisher as EmbeddingPublisher
    from zoo.publishers.generator import GeneratorPublisher as GeneratorPublisher
    from zoo.publishers.jlt import JLT as JLT
    from zoo.publishers.plaintext import Plaintext as Plaintext
    from zoo.publishers.projections import ProjectionPublisher as ProjectionPublisher
    from zoo.publishers.rows import FlippedRows as FlippedRows
    from zoo.publishers.rows import NoisyRows as NoisyRows
    from zoo.publishers.sjlt import SJLT as SJLT
    from zoo.release.denoiser import Denoiser as Denoiser
    from zoo.release.release import Release as Release
    from zoo.runs.exporting import export as export
    from zoo.runs.loading import load as load
    from zoo.runs.probing import probe as probe
    from zoo.runs.publishing import publish as publish
    from zoo.runs.trainer import fit as fit

__version__ = VERSION


def __getattr__(name: str) -> Any:  # noqa: ANN401  any exported name
    """Import an exported name when it is first asked for."""
    return _exports.exported(name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_exports.HOMES])
