"""Workers as an array of jobs on a Slurm cluster."""

from __future__ import annotations

from fsf_slurm._launcher import SlurmLauncher

__all__ = ["SlurmLauncher"]

__version__ = "0.1.0"
