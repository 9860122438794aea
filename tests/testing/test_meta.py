"""Everything that makes a GPU wait is found on the meta device, with its file and line."""

import numpy as np
import pytest
import torch
from torch.func import grad, vmap

from fsframework.testing._meta import fault_on_meta

SQUARE = torch.zeros(3, 3, device="meta")
COUNTS = torch.zeros(3, dtype=torch.int64, device="meta")
ON_CPU = torch.zeros(3)

WAITS = {
    "item": lambda: SQUARE[0, 0].item(),
    "bool": lambda: bool(SQUARE.any()),
    "float": lambda: float(SQUARE.sum()),
    "tolist": lambda: SQUARE.tolist(),
    "cpu": lambda: SQUARE.cpu(),
    "to": lambda: SQUARE.to("cpu"),
    "numpy": lambda: SQUARE.numpy(),
    "equal": lambda: torch.equal(SQUARE, SQUARE),
    "allclose": lambda: torch.allclose(SQUARE, SQUARE),
    "nonzero": lambda: SQUARE.nonzero(),
    "where": lambda: torch.where(SQUARE > 0),
    "masked": lambda: SQUARE[SQUARE > 0],
    "masked assignment": lambda: SQUARE.clone().__setitem__(SQUARE > 0, 1.0),
    "masked_select": lambda: SQUARE.masked_select(SQUARE > 0),
    "unique": lambda: COUNTS.unique(),
    "bincount": lambda: COUNTS.bincount(),
    "repeat_interleave": lambda: COUNTS.repeat_interleave(COUNTS),
    "one_hot": lambda: torch.nn.functional.one_hot(COUNTS),
    "cholesky": lambda: torch.linalg.cholesky(SQUARE),
    "checked cholesky": lambda: torch.linalg.cholesky_ex(SQUARE, check_errors=True),
    "solve": lambda: torch.linalg.solve(SQUARE, SQUARE),
    "inv": lambda: torch.linalg.inv(SQUARE),
    "eigh": lambda: torch.linalg.eigh(SQUARE),
    "svd": lambda: torch.linalg.svd(SQUARE),
    "lstsq": lambda: torch.linalg.lstsq(SQUARE, SQUARE),
    "zeros": lambda: torch.zeros(3),
    "arange": lambda: torch.arange(3) + COUNTS,
    "scalar": lambda: SQUARE * ON_CPU[0],
    "from_numpy": lambda: torch.from_numpy(np.zeros(3)),
    "to the device": lambda: ON_CPU.to("meta"),
    "tensor": lambda: torch.tensor([1.0], device="meta"),
    "new_tensor": lambda: SQUARE.new_tensor(1.0),
    "index by a list": lambda: SQUARE[:, [0, 2]],
    "in vmap": lambda: vmap(lambda row: row * torch.ones(3))(SQUARE),
    "in grad": lambda: grad(lambda x: (x * torch.tensor(2.0)).sum())(SQUARE),
}


@pytest.mark.parametrize("name", WAITS)
def test_what_makes_a_gpu_wait_is_found(name):
    step = WAITS[name]
    fault = fault_on_meta(step)
    assert fault.startswith(f"{__file__}, line {step.__code__.co_firstlineno} (")


class _Weighed(torch.autograd.Function):
    """Its gradient alone makes a tensor on the CPU."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * torch.tensor(2.0)


def test_gradients_are_watched():
    leaf = SQUARE.clone().requires_grad_()
    fault = fault_on_meta(lambda: _Weighed.apply(leaf).sum().backward())
    assert "(return g * torch.tensor(2.0))" in fault


def test_a_fault_that_is_caught_is_reported_all_the_same():
    def step():
        try:
            return SQUARE[0, 0].item()
        except Exception:
            return 0.0

    assert "reads a value" in fault_on_meta(step)


def on_a_gpu(x):
    with torch.autocast(x.device.type, enabled=False):
        assert not torch.is_autocast_enabled(x.device.type)
        torch.get_autocast_dtype(x.device.type)
        ways = torch.arange(3, device=x.device)
        factor = torch.linalg.cholesky_ex(x @ x.mT).L
        x = torch.where(ways > 1, factor, 0.0)[:, ways] + x.new_full((), 2.0)
        x[:, 1:] = 1.0
        repeated = ways.repeat_interleave(2), ways.repeat_interleave(ways, output_size=3)
        return vmap(lambda row: row * 2)(x).topk(2), repeated, torch.randn_like(x)


def test_a_number_in_vmap_is_no_fault():
    assert fault_on_meta(lambda: vmap(lambda row: 0.5 * row.sum())(SQUARE)) == ""


def test_what_a_gpu_does_alone_is_no_fault():
    assert fault_on_meta(lambda: on_a_gpu(SQUARE)) == ""


def test_autocast_is_as_it_was():
    fault_on_meta(lambda: on_a_gpu(SQUARE))
    with pytest.raises(RuntimeError), torch.autocast("meta"):
        pass


def test_a_step_may_feed_a_gpu_if_it_goes_on():
    def step(**how):
        return torch.rand(3).mul(2).to("meta", **how) + SQUARE

    assert fault_on_meta(lambda: step(non_blocking=True), feeds=True) == ""
    assert "CPU" in fault_on_meta(lambda: step(), feeds=True)
    assert "CPU" in fault_on_meta(lambda: ON_CPU + SQUARE, feeds=True)
