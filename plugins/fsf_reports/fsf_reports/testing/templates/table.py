"""A table writer, which writes tables into files with an ending of its own.

Try it: fsf table runs --output table.txt
"""

from collections.abc import Sequence
from pathlib import Path

from fsf_reports.interfaces import TableWriter
from fsf_reports.values import Entry, Quantity, TableDeclaration, shown_columns
from fsframework.values import text_table


class MyTable(TableWriter):
    """Tables as plain text."""

    formats = ("txt",)  # change these: no other table writer may have them

    def write(self, tables: Sequence[TableDeclaration], path: Path) -> None:
        """Write every row, column, mark, reason and note."""
        parts: list[str] = []
        for table in tables:
            columns = shown_columns(table)  # measured values, and printed ones beside them
            rows = []
            for place, names in enumerate(table.rows):
                cells = [shown(one.values[place], one.entries[place]) for one in columns]
                rows.append([*names, *cells])
            heads = [*table.row_names, *(column.name for column in columns)]
            parts += [table.title, text_table(heads, rows), *table.notes]
        path.write_text("\n".join(parts), encoding="utf-8")


def shown(value: Quantity | None, entry: Entry | None) -> str:
    """Return a number with its mark, or why there is none."""
    if value is not None and entry is not None:
        return f"{value.text()} {entry.mark}".strip()
    return entry.reason if entry is not None and entry.reason else "–"
