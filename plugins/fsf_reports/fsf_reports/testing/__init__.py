"""Checks that sections, pages, renderers and writers of tables fulfil their contracts.

``fsframework.testing.check_component`` and ``fsf plugins check NAME`` run them.
"""

from fsf_reports.testing.toys import toy_figure, toy_runs, toy_table

__all__ = ["toy_figure", "toy_runs", "toy_table"]
