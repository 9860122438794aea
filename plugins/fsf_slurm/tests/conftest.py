"""The fixtures of the repository's own tests, and a Slurm cluster of this machine."""

from tests.conftest import _own_folders  # noqa: F401
from tests.slurm_cluster import slurm  # noqa: F401
