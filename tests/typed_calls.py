"""Calls as a user writes them, for mypy: where one is wrong, a comment says which error it is."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Unpack, assert_type

import numpy as np
import numpy.typing as npt
import torch

import fsf_benchmarks
import fsf_self_supervised
import fsf_tools
import fsframework as fsf
from fsframework.interfaces import Backbone, Dataset, FewShotMethod

if TYPE_CHECKING:
    from fsframework.api.arguments import Arguments, Training


def runs(method: FewShotMethod, cls: type[FewShotMethod], backbone: Backbone) -> None:
    fsf.run(metod="ncc")  # error: call-arg
    fsf.run(method=method, backbone=backbone, tasks="all", way=None, runs_dir="runs")
    fsf.run(method={"name": cls, "start": 2.0}, backbone=torch.nn.Linear(2, 2), seeds=range(3))
    fsf.run(method=torch.nn.Linear(2, 2))  # error: arg-type
    fsf.run(method=cls, sampler=cls)  # error: arg-type
    fsf.run(statistics=["acc", "wacc"], drop_words="a,b", interval="bca")
    fsf.run(interval="normal")  # error: arg-type
    fsf.run(tasks="some")  # error: arg-type
    fsf.run(shot="five")  # error: arg-type
    fsf.run(launcher="local")  # error: call-arg
    fsf.describe(shots=5)  # error: call-arg
    assert_type(fsf.run().estimates["wacc-gap"].value, float)


def trainings(training: Training) -> None:
    fsf.run(training={"epochs": 2, "stages": [{"freeze": ["backbone"]}]})
    fsf.run(training=[{"method": "baseline", "augment": ["flip"]}, {"schedule": "step"}])
    fsf.run(training=training)
    fsf.run(training={"epohs": 2})  # error: arg-type
    fsf.run(training={"epochs": 2, "schedule": "linear"})  # error: arg-type
    fsf_self_supervised.pretrain("weights.safetensors", training={"steps": 1}, recipe="none")
    fsf_self_supervised.pretrain("weights.safetensors", seeed=1)  # error: call-arg


def sweeps(methods: list[str]) -> None:
    found = fsf.sweep(method=methods, shot=[1, 5], seeds="0-2", name="mine", launcher="local")
    assert_type(found.runs[0], fsf.Run)
    fsf.sweep(
        method=[{"name": "r2d2", "initial_alpha": 1.0}, "ncc"], interval=("bca",), way=range(3)
    )
    fsf.sweep(training=[[{"epochs": 1}], [{"epochs": 2}]], statistics=[["acc"], ["wacc"]])
    space = {"training.learning_rate": {"low": 1e-4, "high": 0.1, "log": True}, "recipe": ["a"]}
    fsf.sweep(search="optuna", space=space, trials=40, objective="wacc-biased")
    fsf.sweep(search="optuna", spaces=space)  # error: call-arg
    fsf.sweep(shots=[1, 5])  # error: call-arg
    fsf.sweep(shot=["one"])  # error: list-item
    fsf.sweep(precision=["fp8"])  # error: list-item
    fsf_benchmarks.run_benchmark("fewstab", method=methods, shot=[1, 5], launcher="local")
    fsf_benchmarks.run_benchmark("fewstab", benchmark_options={"ablation": True}, seeds="0-2")
    fsf_benchmarks.run_benchmark("fewstab", benchmark_option={})  # error: call-arg


def stages(data: Dataset, model: fsf.Model) -> None:
    pool = fsf.pool(data, split="all", detector={"name": "blip"}, drop_words=["sky"])
    fsf.pool(data, spilt="all")  # error: call-arg
    arms = fsf.draw("fewstab", pool, tasks="all", way=3, shot=1, options_of_the="sampler")
    fsf.draw("fewstab", pool, tasks="al")  # error: arg-type
    fsf.draw("fewstab", pool, way="3")  # error: arg-type
    fsf.dataset(3)  # error: arg-type
    fsf.model("ncc", backbone=torch.nn.Linear(2, 2), size=32)
    fsf.model("ncc", backbone=3)  # error: arg-type
    out = fsf.evaluate(model, arms, data)
    fsf.evaluate(data, arms, model)  # error: arg-type
    assert_type(fsf.estimate(out, "wacc")["wacc-random"], fsf.Estimate)
    fsf_tools.pack_images(data, image_size=84, decoding="scaled", launcher={"name": "local"})
    fsf_tools.pack_images(data, decoding="rough")  # error: arg-type
    fsf_tools.embed_images(model="runs/mine", dataset=data, launcher="local")


def wrappers(given: dict[str, Any], **options: Unpack[Arguments]) -> None:
    fsf.run(**options)
    fsf.run(**given)
    short = partial(fsf.run, method="ncc", training={"epochs": 1})
    short(sampler="random")
    short(samler="random")  # error: call-arg


UInt8s = npt.NDArray[np.uint8]


def classifiers(arms: fsf.Arms) -> None:
    def concrete(support: UInt8s, labels: npt.NDArray[np.int64], query: UInt8s) -> Any:
        return np.zeros((len(query), len(labels)))

    def floats(
        support: UInt8s, labels: npt.NDArray[np.intp], query: UInt8s
    ) -> npt.NDArray[np.float64]:
        return np.zeros((len(query), len(labels)))

    def bare(support: np.ndarray, labels: np.ndarray, query: np.ndarray) -> torch.Tensor:
        return torch.zeros(len(query), 2)

    def abstract(
        support: UInt8s, labels: npt.NDArray[np.integer], query: npt.ArrayLike
    ) -> list[list[float]]:
        return []

    def normalised(
        support: npt.NDArray[np.float32], labels: Any, query: Any
    ) -> npt.NDArray[np.float32]:
        return support

    def silent(support: UInt8s, labels: npt.NDArray[np.int64], query: UInt8s) -> None:
        return None

    fsf.evaluate(concrete, arms, "planted")
    fsf.evaluate(floats, arms, "planted")
    fsf.evaluate(bare, arms, "planted")
    fsf.evaluate(abstract, arms, "planted")
    fsf.evaluate(lambda support, labels, query: np.zeros((len(query), 2)), arms, "planted")
    fsf.evaluate(normalised, arms, "planted")  # error: arg-type
    fsf.evaluate(silent, arms, "planted")  # error: arg-type
