"""The papers' values for the cell of a run."""

from __future__ import annotations

import dataclasses
import math

import pytest

from fsf_benchmarks import Contexts, FewStab, MetaCoCo, OpenIntervals
from fsf_benchmarks._published import METHODS, printed_values
from fsf_benchmarks.interfaces import Cell

FEWSTAB = Cell(
    method="protonet", backbone="resnet12", dataset="cub", detector="vit-gpt2",
    sampler={"name": "fewstab", "n_way": 5, "n_shot": 5, "n_query": 15,
             "support": "exclusive", "query": "inter-least"},
)  # fmt: skip
METACOCO = Cell(
    method="relationnet", backbone="resnet10", dataset="metacoco",
    sampler={"name": "random", "n_way": 5, "n_shot": 5, "n_query": 15},
)  # fmt: skip


def told(benchmark: FewStab | MetaCoCo, cell: Cell) -> dict[str, tuple[float, str, str]]:
    return {
        one.measure: (round(one.value.value, 2), one.table, one.apart)
        for one in benchmark.printed(cell)
    }


def changed(cell: Cell, **sampler: object) -> Cell:
    return dataclasses.replace(cell, sampler={**cell.sampler, **sampler})


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shot", [1, 5])
def test_the_values_of_fewstabs_tables_3_and_s7(method: str, shot: int) -> None:
    cell = changed(dataclasses.replace(FEWSTAB, method=method), n_shot=shot)
    place = "CUB-200", shot, METHODS[method]
    random = printed_values()["3", *place, "wAcc-R"]
    biased = printed_values()["3", *place, "wAcc-A"]
    assert told(FewStab(), cell) == {
        "acc-random": (printed_values()["S7", *place, "Acc"].value, "Table S7", ""),
        "wacc-random": (random.value, "Table 3", ""),
        "wacc-biased": (biased.value, "Table 3", ""),
        "wacc-gap": (round(random.value - biased.value, 2), "Table 3", ""),
    }
    *_, gap = FewStab().printed(cell)
    assert gap.value.half_width == pytest.approx(math.hypot(random.half_width, biased.half_width))


def test_a_recipe_names_the_papers_data_set() -> None:
    folder = dataclasses.replace(FEWSTAB, dataset="folder", recipe="fewstab:CUB-200")
    assert told(FewStab(), folder) == told(FewStab(), FEWSTAB)
    assert told(FewStab(), dataclasses.replace(folder, recipe="fewstab")) == {}


def test_other_words_and_other_constructions() -> None:
    blip = told(FewStab(), dataclasses.replace(FEWSTAB, detector="blip"))
    value = printed_values()["S8", "CUB-200", 5, "ProtoNet", "BLIP"].value
    assert blip["wacc-biased"] == (value, "Table S8", "")
    assert blip["wacc-gap"][1] == "Table 3 and Table S8"
    own = told(FewStab(), dataclasses.replace(FEWSTAB, detector=""))
    assert own["wacc-random"][2] == ""
    assert own["wacc-biased"][2] == own["wacc-gap"][2] == "words by ViT-GPT2"
    targeted = told(FewStab(), changed(FEWSTAB, support="targeted"))
    gap = printed_values()["S5", "CUB-200", 5, "ProtoNet", "SC2"].value
    assert targeted == {"wacc-gap": (gap, "Table S5", "")}
    inter = told(FewStab(), changed(FEWSTAB, query="inter"))
    gap = printed_values()["S6", "CUB-200", 5, "ProtoNet", "QC2"].value
    assert inter == {"wacc-gap": (gap, "Table S6", "")}


def test_table_s10_has_methods_without_and_with_ifsl() -> None:
    mini = dataclasses.replace(FEWSTAB, dataset="miniimagenet")
    for method, column in (("maml", "base"), ("ifsl:maml", "ifsl")):
        found = told(FewStab(), dataclasses.replace(mini, method=method))
        value = printed_values()["S10", "miniImageNet", 5, "MAML", column].value
        assert found == {"wacc-biased": (value, "Table S10", "no backbone named")}


@pytest.mark.parametrize(
    "cell",
    [
        dataclasses.replace(FEWSTAB, backbone="conv64f"),
        dataclasses.replace(FEWSTAB, method="ncc"),
        dataclasses.replace(FEWSTAB, dataset="planted"),
        changed(FEWSTAB, name="random"),
        changed(FEWSTAB, n_way=4),
        changed(FEWSTAB, n_query=10),
        changed(FEWSTAB, n_shot=2),
        changed(FEWSTAB, n_shot=1, query="intra"),
        dataclasses.replace(METACOCO, backbone="conv64f", method="knn"),
        changed(METACOCO, n_way=20),
        changed(METACOCO, name="fewstab"),
        changed(METACOCO, n_shot=3),
    ],
)
def test_another_cell_has_no_value(cell: Cell) -> None:
    every = [Contexts(), FewStab(), MetaCoCo(), OpenIntervals()]
    found = [one for benchmark in every for one in benchmark.printed(cell)]
    assert found == []


def test_the_values_of_metacocos_tables() -> None:
    assert told(MetaCoCo(), METACOCO) == {"acc-random": (57.73, "Table 3", "no backbone named")}
    baseline = dataclasses.replace(METACOCO, method="baseline", backbone="resnet12")
    assert told(MetaCoCo(), baseline) == {"acc-random": (60.78, "Table 2", "")}
    one = changed(baseline, n_shot=1)
    assert told(MetaCoCo(), one) == {"acc-random": (46.78, "Table 2", "")}
