"""Tables of runs: every number is that of the public function, and every name is text."""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import fsf_reports
import fsf_statistics
import fsframework as api
from fsf_reports import PlainTables, table
from fsf_reports._table_files import WRITERS, caption, notes, to_csv, to_html, to_markdown, to_tex
from fsf_reports.values import Entry, Quantity, TableDeclaration, table_of_headline
from fsframework.errors import DataError, OptionError
from fsframework.testing import Check, Make, parametrize_with_checks
from tests.conftest import Fsf

from .conftest import untrained

NASTY = (
    "<script>alert(1)</script>",
    "\"quoted\" & 'q' \\ %s $x_1$ {a} # ~ ^ | `b` -- ---",
    "שלום 🐕 naïve α łó",
    "long name " * 30,
    "X" * 300,
    "a_b*c*",
)


def nasty() -> TableDeclaration:
    entries = []
    for number, name in enumerate(NASTY):
        value = Quantity.around(13.04 * number - 10, 1.2) if number != 2 else None
        mark = {1: "best", 3: "tied"}.get(number, "")
        entries += [
            Entry((str(number // 3), name), column, value, "it failed", mark=mark)  # type: ignore[arg-type]
            for column in ("wAcc-R", "gap $%&")
        ]
    notes = (f"A note on {NASTY[1]}.", NASTY[2])
    names = ("group_%", "method")
    return TableDeclaration("Table <1>", f"Of {NASTY[0]}.", names, tuple(entries), notes)


def test_methods_of_one_group_have_their_letter(on_a_line: Path) -> None:
    made = table(on_a_line, statistic="acc")
    assert made.row_names == ("method", "letter")
    assert {row[1] for row in made.rows} == {"a"}


def test_why_there_is_no_robustness_is_said(on_a_line: Path) -> None:
    made = table(on_a_line)  # by wAcc, all are near guessing
    assert "robustness" not in made.columns
    assert any(remark.startswith("No robustness: ") for remark in made.remarks)


def test_the_headline_is_that_of_the_public_function(one_shot: list[Path]) -> None:
    made = table(one_shot)
    wanted = table_of_headline(fsf_statistics.headline(one_shot))
    assert made.row_names == ("method",)
    measured = {entry.column for entry in wanted.entries if entry.measured is not None}
    assert made.columns == tuple(column for column in wanted.columns if column in measured)
    assert {"Acc-R", "Acc gap", "wAcc-R", "wAcc-A", "gap"} <= set(made.columns)
    found = {(entry.row, entry.column): entry for entry in made.entries}
    for entry in wanted.entries:
        if entry.column not in measured:
            continue
        own = found[entry.row, entry.column]
        assert (own.measured, own.mark) == (entry.measured, entry.mark)
    assert "On planted, 3-way 1-shot: 24 tasks per arm; 95 % intervals over tasks" in made.reading
    rows = list(csv.DictReader(io.StringIO(to_csv(made))))
    for row, entry in zip(rows, made.entries, strict=True):
        if entry.measured is None:
            assert entry.reason
            continue
        assert float(row["measured"]) == pytest.approx(entry.measured.value, abs=1e-6)
        names = row["method"], row["quantity"], row["mark"]
        assert names == (entry.row[0], entry.column, entry.mark)


def test_columns_are_chosen_by_name_or_head_and_rows_grouped(small_runs: Path) -> None:
    made = table(small_runs, columns=["gap", "wacc-biased"], group_by="shot")
    assert made.columns == ("gap", "wAcc-A")
    assert made.row_names == ("shot", "method")
    shots = [entry.row[0] for entry in made.entries]
    assert shots == sorted(shots)
    for options in ({"columns": ["wac"]}, {"group_by": "shots"}, {"of": "headlines"}):
        with pytest.raises(OptionError, match=f"^{next(iter(options))}="):
            table(small_runs, **options)  # type: ignore[arg-type]


def test_values_are_means_over_seeds_and_tasks_are_told_apart(two_strengths: list[Path]) -> None:
    made = table(two_strengths, group_by="strength")
    assert made.row_names == ("strength", "seeds", "method")
    found = {(entry.row, entry.column): entry.measured for entry in made.entries}
    answer = table_of_headline(fsf_statistics.headline(two_strengths))
    assert answer.row_names == ("method", "strength", "seeds")
    shown = [entry for entry in answer.entries if entry.column in made.columns]
    assert len(shown) == len(found)
    for entry in shown:
        method, strength, seeds = entry.row
        assert found[(strength, seeds, method), entry.column] == entry.measured
    assert ("0.2", "2", "ncc") in {row for row, _ in found}


def test_a_caption_is_short_and_options_are_words(one_shot: list[Path], tmp_path: Path) -> None:
    common = untrained(tmp_path)
    api.run(method="ncc", shot=1, placebo=True, **common)
    api.run(method="ncc", shot=1, drop_words=["red", "blue"], **common)
    made = table([*one_shot, common["runs_dir"]])
    cells = {name: {row[place] for row in made.rows} for place, name in enumerate(made.row_names)}
    assert cells["placebo"] == {"yes", "no"}
    assert cells["drop words"] == {"", "red, blue"}
    text = to_tex(made)
    [above] = re.findall(r"\\caption\{(.*)\}", text)
    assert len(above.split()) <= 80
    for part in ("planted", "3-way 1-shot", "24 tasks per arm", r"95 \% intervals", "wAcc"):
        assert part in above
    assert made.remarks
    assert len(set(made.remarks)) == len(made.remarks)
    assert not any(remark in text for remark in made.remarks)


def test_shots_are_columns(small_runs: Path) -> None:
    made = table(small_runs, "shots")
    assert made.columns == ("gap, 1-shot", "gap, 2-shot")
    [run] = [run for run in api.runs(small_runs) if run.record.tested.n_shot == 2]
    [entry] = [entry for entry in made.entries if entry.column == "gap, 2-shot"]
    assert entry.measured == Quantity.of(run.estimates["wacc-gap"])
    assert re.search(r"ncc *& .* & \\multicolumn|ncc & ", to_tex(made))


def test_differences_are_those_of_compare(one_shot: list[Path]) -> None:
    made = table(one_shot, "differences", columns=["wacc-gap"])
    pairs = api.compare(one_shot, "wacc-gap").pairs
    found = {entry.row[0]: entry for entry in made.entries if entry.column == "wAcc gap"}
    assert len(found) == len(pairs) == 3
    for pair in pairs:
        entry = found[f"{pair.first} − {pair.second}"]
        assert entry.measured == Quantity.of(pair.difference)
        assert entry.about["p_holm"] == pair.p_holm


@pytest.mark.parametrize(
    ("name", "by"), [("classes", "class"), ("attributes", "attribute"), ("pairs", "pair")]
)
def test_parts_of_a_run_are_those_of_a_breakdown(name: str, by: Any, one_shot: list[Path]) -> None:
    made = table(one_shot[:1], name)
    rows = fsf_statistics.breakdown(one_shot[0], by).rows
    assert len(repr(made)) < 300
    found = {(entry.row, entry.column): repr(entry.measured) for entry in made.entries}
    assert found == {(row.names, row.arm): repr(Quantity.of(row.estimate)) for row in rows}


def test_the_worst_groups_are_those_of_the_public_function(tmp_path: Path) -> None:
    run = api.run(method="ncc", **{**untrained(tmp_path), "tasks": 200})
    made = table(run, "worst-groups")
    found = [repr(e.measured) for e in made.entries if e.column == "worst group"]
    rows = fsf_statistics.worst_groups(run).rows
    assert found == [repr(Quantity.of(row.estimate)) for row in rows]
    assert {entry.column for entry in made.entries} == {"worst group", "wAcc"}


def test_markdown_and_html_show_names_as_text(parsed: Any) -> None:
    page = parsed(to_html(nasty(), grouped=True))
    assert page.tags <= {"table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td", "b"}
    for name in NASTY:
        assert " ".join(name.split()) in page.text
    assert "<td>3.04 ± 1.20 *</td>" in nasty()._repr_html_()
    text = to_markdown(nasty())
    assert "<script>" not in text + nasty()._repr_html_()
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {5}
    assert "a\\_b\\*c\\*" in text
    assert "**3.0 ± 1.2**" in text
    assert "29.1 ± 1.2 ~" in text


def test_latex_has_the_structure_of_booktabs() -> None:
    text = to_tex(nasty(), grouped=True)
    for part in (r"\toprule", r"\midrule", r"\bottomrule", r"\caption{", r"\label{tab:table-1}"):
        assert text.count(part) == 1
    body = text.partition(r"\midrule")[2].partition(r"\bottomrule")[0]
    lines = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert len(lines) == 6 + 2
    for line in lines:
        spans = [int(n) - 1 for n in re.findall(r"\\multicolumn\{(\d)\}", line)]
        assert len(re.findall(r"(?<!\\)&", line)) + sum(spans) == 4
    assert r"\textbf{3.0} & \textbf{\boldmath$\pm$ 1.2}" in text
    assert r"29.1 & $\pm$ 1.2$^\dagger$" in text
    assert r"$-$10.0 & $\pm$ 1.2" in text


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no LaTeX here")
@pytest.mark.parametrize("grouped", [True, False])
def test_latex_compiles(grouped: bool, one_shot: list[Path], tmp_path: Path) -> None:
    (tmp_path / "nasty.tex").write_text(to_tex(nasty(), grouped=grouped), encoding="utf-8")
    (tmp_path / "runs.tex").write_text(to_tex(table(one_shot)), encoding="utf-8")
    (tmp_path / "paper.tex").write_text(
        r"\documentclass{article}\usepackage{booktabs}\begin{document}"
        r"\input{nasty}\input{runs}\end{document}",
        encoding="utf-8",
    )
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    log = (tmp_path / "paper.log").read_text(encoding="utf-8", errors="replace")
    assert done.returncode == 0, log[-3000:]
    assert (tmp_path / "paper.pdf").stat().st_size > 10_000
    wide = re.findall(r"Overfull \\hbox \(([\d.]+)pt", log)
    assert not [float(width) for width in wide if float(width) > 10]


def test_the_caption_says_what_runs_share_and_rules_part_the_tasks(small_runs: Path) -> None:
    made = table(small_runs)
    [run, *_] = api.runs(small_runs)
    shared = f"{run.record.tested.n_query} queries per class; backbone "
    assert shared + run.record.components["backbone"].called in made.reading
    text = to_tex(made)
    assert r"\begin{table}[t]" in text
    assert len(made.row_names) + len(made.columns) == 7
    assert text.count(r"\midrule") == len({row[0] for row in made.rows}) == 2
    assert r"\begin{table*}[t]" in to_tex(table(small_runs, group_by="backbone"))


def test_a_value_that_rounds_to_zero_has_no_sign() -> None:
    entries = (Entry(("a",), "v", Quantity.around(-0.04, 1.0)),)
    assert "| a | 0.0 ± 1.0 |" in to_markdown(TableDeclaration("T", "t", ("n",), entries))


def test_small_and_missing_values() -> None:
    values = (Quantity(0.00001, unit=""), Quantity(3.0, 1.0, 6.0), Quantity(2.0), None)
    entries = tuple(
        Entry((str(n),), "v", value, "" if value else "why") for n, value in enumerate(values)
    )
    text = to_markdown(TableDeclaration("T", "t", ("n",), entries))
    cells = [line.split("|")[2].strip() for line in text.splitlines() if line.startswith("|")]
    assert cells[2:] == ["<0.001", "3.0 [1.0, 6.0]", "2.0", "– (a)"]
    made = TableDeclaration("T", "t", ("n",), entries, ("note",), reading="On data")
    assert (caption(made), notes(made)) == ("t. On data.", "a: why. note.")


@parametrize_with_checks([PlainTables])
def test_conformance(make: Make, check: Check) -> None:
    check(make)


BESIDE = TableDeclaration(
    "Table 3", "Worst classes.", ("shot", "method"),
    (
        Entry(("1", "A&B|c"), "wAcc-A", Quantity.around(30.0, 3.0),
              printed=Quantity.around(34.0, 4.0), about={"shot": 1}),
        Entry(("5", "x_y"), "wAcc-A", None, "failed: 100 % of #1", about={"shot": 5}),
    ),
    ("a note & more",),
    source="FewSTAB",
)  # fmt: skip


def test_printed_values_are_beside_measured_ones(tmp_path: Path) -> None:
    path = tmp_path / "tables.md"
    fsf_reports.save_tables([BESIDE, nasty()], path, writer={"name": "plain-tables", "digits": 2})
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if "|" in line]
    assert lines[0] == ("| shot | method | wAcc-A | wAcc-A, printed | wAcc-A, measured − printed |")
    assert lines[2] == "| 1 | A&amp;B\\|c | 30.00 ± 3.00 | 34.00 ± 4.00 | −4.00 ± 5.00 |"
    assert lines[3] == "| 5 | x\\_y | – (a) | – | – |"
    rows = list(csv.DictReader(io.StringIO(to_csv(BESIDE, nasty()))))
    assert [row["table"] for row in rows][:3] == ["Table 3", "Table 3", "Table <1>"]
    names = ("measured", "printed", "difference", "difference_half_width")
    assert [float(rows[0][name]) for name in names] == [30.0, 34.0, -4.0, 5.0]
    assert (rows[1]["measured"], rows[1]["reason"]) == ("", "failed: 100 % of #1")


def test_two_latex_tables_of_one_name_have_two_labels(tmp_path: Path) -> None:
    fsf_reports.save_tables([BESIDE, BESIDE], tmp_path / "tables.tex")
    text = (tmp_path / "tables.tex").read_text(encoding="utf-8")
    assert re.findall(r"\\label\{(.*)\}", text) == ["tab:table-3", "tab:table-3-2"]
    assert r"\caption{Table 3 of FewSTAB. Worst classes.}" in text
    assert r"a: failed: 100 \% of \#1." in text.partition(r"\end{tabular}")[2]


def test_a_file_that_nothing_writes(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"must end in one of .tex, .md, .csv, .html"):
        fsf_reports.save_tables(BESIDE, tmp_path / "tables.xls")
    with pytest.raises(DataError, match="no tables to write"):
        fsf_reports.save_tables([], tmp_path / "tables.tex")
    assert list(tmp_path.glob("tables*")) == []


def test_the_commands_of_the_page_on_papers_fill_its_table(
    fsf: Fsf, one_shot: list[Path], tmp_path: Path
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "paper.md").read_text(encoding="utf-8")
    for run in one_shot:
        (tmp_path / "runs").mkdir(exist_ok=True)
        (tmp_path / "runs" / run.name).symlink_to(run)
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    for line in "".join(blocks).splitlines():
        done = fsf(*line.partition(" > ")[0].split()[1:])
        assert done.returncode == 0, (line, done.stderr)
    heads = re.search(r"^method & .*$", page, re.MULTILINE)
    assert heads is not None
    made = (tmp_path / "table.tex").read_text(encoding="utf-8").partition(r"\toprule")[2]
    shown = re.sub(r"\\multicolumn\{2\}\{c\}\{(.*?)\}", r"\1", made.splitlines()[1])
    assert shown == heads[0]


def test_the_command(fsf: Fsf, one_shot: list[Path], tmp_path: Path) -> None:
    runs = [str(run) for run in one_shot]
    files = [part for suffix in WRITERS for part in ("--output", f"t{suffix}")]
    done = fsf("table", *runs, *files)
    assert done.returncode == 0, done.stderr
    for suffix, write in WRITERS.items():
        assert (tmp_path / f"t{suffix}").read_text(encoding="utf-8") == write(table(one_shot))
    shown = fsf("table", *runs, "--columns", "gap").stdout.splitlines()
    assert shown[0].split() == ["method", "gap"]
    refused = fsf("table", *runs, "--output", "t.xls")
    assert (refused.returncode, "must end in one of .tex" in refused.stderr) == (2, True)
    unknown = fsf("table", *runs, "--columns", "wac")
    assert "--columns wac: no column has this name" in unknown.stderr
