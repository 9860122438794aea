"""The launcher for Ray: workers on the nodes of a Ray cluster."""

from __future__ import annotations

from fsf_ray._launcher import RayLauncher

__all__ = ["RayLauncher"]

__version__ = "0.1.0"
