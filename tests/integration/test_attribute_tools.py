"""The commands of `fsf-toolbox` on the embedded data."""

from __future__ import annotations

import json
from pathlib import Path

import fsframework
from tests.conftest import Fsf

DATA = ("--dataset", "planted", "-o", "dataset.n_per_class=8", "-o", "dataset.size=16")


def test_words_are_counted_compared_and_shown(fsf: Fsf, tmp_path: Path) -> None:
    done = fsf("attributes", "stats", *DATA, "--shot", "1", "--queries", "2", "--json")
    told = json.loads(done.stdout)
    assert (told["images"], told["classes"]) == (160, 20)
    assert (told["n_way"], told["n_shot"], told["n_query"]) == (5, 1, 2)
    assert fsf("attributes", "stats", *DATA, "--queries", "auto").returncode == 2

    pool = fsframework.pool({"name": "planted", "n_per_class": 8, "size": 16})
    rows = zip(pool.keys, pool.metadata["words"], strict=True)
    (tmp_path / "own.csv").write_text("\n".join(["key,words", *map(",".join, rows)]) + "\n")
    extract = ("attributes", "extract", "--detector", "metadata", *DATA)
    assert fsf(*extract, "whole.parquet").returncode == 0
    told = json.loads(fsf("attributes", "agree", "whole.parquet", "own.csv", "--json").stdout)
    assert (told["images"], told["jaccard"], told["a"]["accuracy"]) == (160, 1.0, 1.0)

    for name in ("page.html", "page.png"):
        done = fsf("attributes", "show", name, *DATA, "--images", "5")
        assert done.stdout == f"{name}: 5 of 160 images\n", done.stderr
        assert (tmp_path / name).stat().st_size > 1000
        assert "--force" in fsf("attributes", "show", name, *DATA).stderr
    other = fsf("attributes", "show", "page.pdf", *DATA)
    assert "page.pdf must end in .html or .png" in other.stderr
