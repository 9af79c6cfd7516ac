"""NVFlare as a carrier of releases: a controller at the target, an executor at each source, and their provisioning."""
