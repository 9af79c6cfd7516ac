"""NVFlare as a carrier of releases: a controller at the target, an executor at each source, and their provisioning."""

SIMULATED = "ZOO_NVFLARE_SITES"
"""Variable with the folder of the settings of each party, ``NAME.json``, in a simulation, whose sites have no folder."""
