"""Few-shot methods that adapt to a task by gradient steps."""

from __future__ import annotations

from fsf_gradient_methods._anil import ANIL
from fsf_gradient_methods._boil import BOIL
from fsf_gradient_methods._leo import LEO
from fsf_gradient_methods._maml import MAML

__all__ = ["ANIL", "BOIL", "LEO", "MAML"]

__version__ = "0.1.0"
