"""Checkpoints of LibFewShot as runs of ours."""

from __future__ import annotations

from fsf_libfewshot._importer import LibFewShot

__all__ = ["LibFewShot"]

__version__ = "0.1.0"
