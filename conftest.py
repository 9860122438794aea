"""What holds for every test of the repository."""

import os

# Tests run in as many processes as there are cores, so threads within one would only wait for
# those of another; this must be said before torch is imported, and reaches child processes.
os.environ.setdefault("OMP_NUM_THREADS", "1")
