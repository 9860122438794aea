"""Attacks by plugins: methods, samplers, statistics and data sets that misbehave when called."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adversary.world import QUICK, World

_HEAD = """
import os, sys
import numpy as np
import torch
from fsframework.interfaces import FewShotMethod, Statistic

class Text(Exception):
    def __str__(self):
        raise RuntimeError("no text")

def way_of(support, query):
    return -torch.cdist(query, support.mean(dim=2))
"""

_METHOD = """
class Mine(FewShotMethod):
    "A method that misbehaves."
    learns_from = "nothing"
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.register_buffer("count", torch.zeros(1))
    def scores(self, support, query):
        {body}
"""

_STATISTIC = """
class Mine(Statistic):
    "A statistic that misbehaves."
    def per_task(self, outcomes):
        {body}
"""

_RAISES = {
    "exits with 0": "raise SystemExit(0)",
    "exits with 3": "raise SystemExit(3)",
    "exits with a text": "sys.exit('bye')",
    "raises a class": "raise ValueError",
    "raises emptiness": "raise BaseException",
    "raises a generator's end": "raise GeneratorExit",
    "raises without text": "raise Text()",
    "raises a group": "raise BaseExceptionGroup('many', [SystemExit(0)])",
    "raises StopIteration": "raise StopIteration",
    "recurses": "return self.{call}",
    "asserts": "assert False",
    "exhausts memory": "raise MemoryError",
    "finds no file": "return open('/nowhere/at/all')",
    "writes to a closed pipe": "raise BrokenPipeError",
}

_SCORES = {
    "none": "return None",
    "numbers": "return [[1.0]]",
    "an array": "return way_of(support, query).numpy()",
    "one task fewer": "return way_of(support, query)[1:]",
    "one way fewer": "return way_of(support, query)[..., 1:]",
    "one query more": "return way_of(support, query).repeat(1, 2, 1)",
    "whole numbers": "return way_of(support, query).long()",
    "truth values": "return way_of(support, query) > 0",
    "complex numbers": "return way_of(support, query).to(torch.complex64)",
    "a sparse tensor": "return way_of(support, query).to_sparse()",
    "not a number": "return way_of(support, query) * float('nan')",
    "infinity": "return way_of(support, query) - float('inf')",
    "another device": "return way_of(support, query).to('meta')",
    "a scalar": "return way_of(support, query).sum()",
    "a tuple": "return (way_of(support, query),)",
}

_NUMBERS = {
    "none": "return None",
    "a text": "return 'high'",
    "one number": "return 0.5",
    "one task fewer": "return outcomes.task_accuracy[1:]",
    "two dimensions": "return outcomes.class_accuracy",
    "not a number": "return outcomes.task_accuracy * float('nan')",
    "out of bounds": "return outcomes.task_accuracy + 7",
    "complex numbers": "return outcomes.task_accuracy * 1j",
    "objects": "return np.array([object()] * len(outcomes))",
}


_RAISED_ANYWHERE = ("exits with 0", "raises without text", "recurses")
"""What statistics raise, too: every plugin is called in the same way."""
_FAULTS = [
    *(("method", how, body) for how, body in (_RAISES | _SCORES).items()),
    *(("statistic", how, _RAISES[how]) for how in _RAISED_ANYWHERE),
    *(("statistic", how, body) for how, body in _NUMBERS.items()),
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("kind", "how", "body"), _FAULTS)
def test_a_fault_is_one_sentence_that_names_the_plugin(
    world: World, kind: str, how: str, body: str
) -> None:
    template = _METHOD if kind == "method" else _STATISTIC
    call = "scores(support, query)" if kind == "method" else "per_task(outcomes)"
    file = world.folder / "mine.py"
    file.write_text(_HEAD + template.replace("{body}", body.replace("{call}", call)))
    told = world.tell("run", *QUICK, "--plugin", file, f"--{kind}", "mine")
    assert (told.code, told.faults()) == (2, []), how
    assert "mine" in told.err.splitlines()[-1]


_CHANGES = {
    "a parameter": "self.weight.data.add_(1)",
    "a parameter in place": "torch.nn.init.normal_(self.weight)",
    "a buffer": "self.count += 1",
    "a parameter's object": "self.weight = torch.nn.Parameter(self.weight + 1)",
}


@pytest.mark.parametrize("how", _CHANGES)
def test_a_method_that_changes_itself_is_set_back_and_named(world: World, how: str) -> None:
    body = f"""{_CHANGES[how]}
        return way_of(support, query) * (self.weight + self.count)"""
    file = world.folder / "mine.py"
    file.write_text(_HEAD + _METHOD.replace("{body}", body))
    told = world.tell("run", *QUICK, "--plugin", file, "--method", "mine")
    assert told.faults() == []
    assert told.code == 0, told.err
    assert "mine" in told.err, "no line says which method changed itself"


_IMPORTS = {
    "prints": "print('hello')",
    "exits": "raise SystemExit(0)",
    "raises without text": "raise Text()",
    "is no Python": "def (",
    "is not text": "\udcff",
    "never ends its recursion": "def f(): f()\nf()",
}


@pytest.mark.parametrize("how", _IMPORTS)
def test_a_file_that_misbehaves_at_import(world: World, how: str) -> None:
    sound = _STATISTIC.replace("{body}", "return outcomes.task_accuracy")
    source = f"{_HEAD}{_IMPORTS[how]}\n{sound}"
    file = world.folder / "mine.py"
    file.write_bytes(source.encode("utf-8", "surrogateescape"))
    told = world.tell("run", *QUICK, "--plugin", file, "--json")
    assert told.faults() == []
    assert told.code == (0 if how == "prints" else 2)
    assert Path(file).name in told.err or how == "prints"
    if how == "prints":
        assert told.out.startswith("{")
