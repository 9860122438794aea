"""The values that flow between stages: frozen, array-backed, validated, with ``save`` and ``load``.

``ImagePool`` -> ``AttributeTable`` -> ``TaskSet`` -> ``Outcomes`` -> ``Estimate``. Only NumPy is
imported here; PyArrow and safetensors are imported by the ``save`` and ``load`` that need them.
"""

from fsframework._digest import digest_of
from fsframework.values._arrays import BoolArray, FloatArray, IntArray, UInt8Array
from fsframework.values._formats import SCHEMA_VERSION
from fsframework.values.arms import ArmOutcomes, Arms, Contrast
from fsframework.values.attributes import AttributeTable
from fsframework.values.estimate import Estimate, Estimates, measure_name
from fsframework.values.outcomes import AccuracyOutcomes, Outcomes, QueryBatch, Scope
from fsframework.values.pool import ImagePool, ImageRecord
from fsframework.values.seeds import task_rng, task_seed
from fsframework.values.tables import footnotes, html_table, text_table
from fsframework.values.tasks import TaskSet

__all__ = [
    "SCHEMA_VERSION",
    "AccuracyOutcomes",
    "ArmOutcomes",
    "Arms",
    "AttributeTable",
    "BoolArray",
    "Contrast",
    "Estimate",
    "Estimates",
    "FloatArray",
    "ImagePool",
    "ImageRecord",
    "IntArray",
    "Outcomes",
    "QueryBatch",
    "Scope",
    "TaskSet",
    "UInt8Array",
    "digest_of",
    "footnotes",
    "html_table",
    "measure_name",
    "task_rng",
    "task_seed",
    "text_table",
]
