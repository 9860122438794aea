"""Any image model of timm as a backbone, with weights of the hub, of a file, or random ones."""

from __future__ import annotations

from fsf_timm._backbone import Timm

__all__ = ["Timm"]

__version__ = "0.1.0"
