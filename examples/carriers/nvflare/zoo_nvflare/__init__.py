"""NVFlare as a carrier of releases: a controller at the target, an executor at each source, and their provisioning."""

SETTINGS, TARGET = "zoo.json", "target"
"""File of a party's own settings in its folder ``local``, and name of the target's folder."""
SIMULATED = "ZOO_NVFLARE_SITES"
"""Variable with the folder of the settings of each party, ``NAME.json``, in a simulation, whose sites have no folder."""
