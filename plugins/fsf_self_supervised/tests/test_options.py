"""Options and components that are refused, naming the option and what was given."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
import torch

from fsf_methods.adaptation import ContrastiveCentroids
from fsf_methods.gradient import MAML
from fsf_methods.metric import DN4, ProtoNet
from fsf_methods.transfer import NCC, Baseline
from fsf_self_supervised.methods import BECLR, MoCo, OpTA, PsCo, SimCLR, UniSiam
from fsf_self_supervised.pretext import BF3S, HTS, SLA, SSFSL
from fsf_self_supervised.views import (
    ColorPermutation,
    Jigsaw,
    MoCoV2,
    MultiCrop,
    Patches,
    Product,
    Rotation,
)
from fsf_self_supervised.views import SimCLR as SimCLRViews
from fsframework.interfaces import Batch, OptionError
from fsframework.testing.method import built
from tests.conftest import Fsf
from tests.toy_views import Dimmed

NUMBERS: list[tuple[Any, dict[str, Any]]] = [
    (partial(BECLR, views=Dimmed(), inference=NCC()), {"mask": 1.0, "memory": 100}),
    (partial(HTS, base=ProtoNet(), views=Rotation()), {"beta": -1.0}),
    (partial(MoCo, views=Dimmed()), {"momentum": 1.0, "parts": 0}),
    (partial(OpTA, classifier=NCC()), {"ratio": 1.5, "passes": -1}),
    (partial(PsCo, views=Dimmed()), {"queue": 3, "space": "maps"}),
    (partial(SLA, base=ProtoNet(), views=Rotation()), {"temperature": 0.0}),
    (partial(SSFSL, base=ProtoNet(), views=Rotation()), {"lbda": 1.0}),
    (partial(SimCLR, views=Dimmed()), {"temperature": 0.0}),
    (partial(UniSiam, views=Dimmed()), {"width": 3, "teacher_width": 3}),
    (Jigsaw, {"grid": 4}),
    (MoCoV2, {"blur": 1.5}),
    (MultiCrop, {"min_area": 0.5}),
    (Patches, {"gap": 1.0}),
    (SimCLRViews, {"strength": -1.0, "min_area": 0.0}),
]


@pytest.mark.parametrize(
    ("make", "option", "value"),
    [(make, *given) for make, options in NUMBERS for given in options.items()],
)
def test_a_value_outside_its_range_is_refused(make: Any, option: str, value: Any) -> None:
    with pytest.raises(OptionError, match=f"^{option} must .*{value}"):
        make(**{option: value})


@pytest.mark.parametrize(
    ("make", "options", "named"),
    [
        (Rotation, {"angles": (0, 45)}, "angles .* got 45"),
        (Rotation, {"angles": (0, 360)}, "angles .* got 0, 360"),
        (Rotation, {"angles": ()}, "angles .* got none"),
        (ColorPermutation, {"orders": ("rgb", "rrb")}, "got rrb"),
        (ColorPermutation, {"orders": ("rgb", "rgb")}, "orders .* got rgb, rgb"),
        (Jigsaw, {"grid": 2, "n_permutations": 25}, "n_permutations must be in 2..24"),
        (Product, {"first": Rotation(), "then": Jigsaw()}, "^then .* but Jigsaw"),
        (SimCLR, {"views": Rotation()}, "two views .* Rotation makes 4"),
        (partial(BECLR, views=Dimmed()), {"inference": ContrastiveCentroids()}, "^inference "),
        (OpTA, {"classifier": ContrastiveCentroids()}, "^classifier "),
        *((w, {"base": ProtoNet(), "views": SimCLRViews()}, "SimCLR has only one")
          for w in (SSFSL, BF3S)),
        (BF3S, {"base": ProtoNet(), "views": Jigsaw()}, "Jigsaw"),
        (BF3S, {"base": ProtoNet(), "views": Rotation(), "pretext": "location"}, "views=patches"),
        (BF3S, {"base": DN4(), "views": Patches(), "pretext": "location"}, "DN4 .* patch_weight=0"),
        (SLA, {"base": MAML(n_way=8), "views": Rotation(), "inference": "single"}, "made for 8"),
        (SLA, {"base": ProtoNet(), "views": Patches()}, "as rotation does, but Patches"),
        (SLA, {"base": SLA(base=ProtoNet(), views=Rotation()), "views": Rotation(),
               "self_distillation": True}, "self_distillation, but SLA is trained on images"),
        (HTS, {"base": ProtoNet(), "views": Jigsaw()}, "^views .* Jigsaw does not"),
        (HTS, {"base": ProtoNet(), "views": Rotation(), "deeper": (Jigsaw(),)}, "^deeper .* Jig"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_together_are_refused(make: Any, options: Any, named: str) -> None:
    with pytest.raises(OptionError, match=named):
        make(**options)


def test_without_its_weight_a_patch_needs_no_vectors() -> None:
    assert BF3S(base=DN4(), views=Patches(), pretext="location", patch_weight=0.0)


@pytest.mark.parametrize(
    ("make", "pixels", "named"),
    [
        (Patches, (2, 2), "2 x 2 pixels are too small"),
        (Rotation, (2, 3), "must be square"),
        (partial(Product, first=MultiCrop(), then=Rotation()), (30, 30), "^first .* small views"),
    ],
)
def test_images_that_do_not_fit_are_refused(make: Any, pixels: Any, named: str) -> None:
    with pytest.raises(OptionError, match=named):
        make().make(torch.rand(1, 3, *pixels))


@pytest.mark.parametrize(
    ("make", "fields", "named"),
    [
        (lambda: SimCLR(views=Dimmed()), [], "SimCLR learns from views, but this step has none"),
        (lambda: SimCLR(views=Dimmed()), ["views", "small_views"], "no small ones"),
        (lambda: SSFSL(base=Baseline(), views=Rotation()), ["items", "classes"], "has none"),
        (lambda: BF3S(base=Baseline(), views=Rotation()), ["items", "classes"], "has none"),
        (lambda: SLA(base=Baseline(), views=Rotation()), ["items", "classes", "teacher_logits"],
         "SLA has no loss of a teacher's logits"),
    ],
)  # fmt: skip
def test_steps_that_do_not_fit_are_refused(make: Any, fields: list[str], named: str) -> None:
    known = {
        "views": torch.rand(4, 2, 3, 20, 20),
        "small_views": torch.rand(4, 2, 3, 20, 20),
        "items": torch.rand(4, 3, 20, 20),
        "classes": torch.arange(4),
        "teacher_logits": torch.zeros(4, 11),
    }
    with pytest.raises(OptionError, match=named):
        built(make).train().loss(Batch(**{name: known[name] for name in fields}))


def test_the_composed_views_of_sla_are_options(fsf: Fsf) -> None:
    views = ("method.views=product", "method.views.then.orders=rgb,gbr,brg")
    options = [part for view in views for part in ("-o", view)]
    told = fsf("run", "--method", "sla:protonet", *options, "--dry-run", "--json")
    assert told.returncode == 0, told.stderr
    resolved = json.loads(told.stdout)["resolved"]["method"]["views"]
    assert resolved == {
        "name": "product",
        "first": {"name": "rotation", "angles": [0, 90, 180, 270]},
        "then": {"name": "color-permutation", "orders": ["rgb", "gbr", "brg"]},
    }
