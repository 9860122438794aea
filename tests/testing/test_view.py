"""Each check of view makers rejects the one broken component made for it, and nothing else does."""

import pytest
import torch

from fsframework.interfaces import ViewMaker, Views
from fsframework.testing import checks_for, parametrize_with_checks
from tests.misdeclared import hashed, misdeclared


class Mirrors(ViewMaker):
    """An image and its mirror image."""

    n_views = n_kinds = 2

    def __init__(self, *, first: bool = False):
        self.first = first

    def make(self, images):
        return Views(self.shown(images), self.numbers(len(images)))

    def shown(self, images):
        return torch.stack([images, images.flip(-1)], dim=1)

    def numbers(self, n):
        return torch.arange(2).expand(n, -1)


class Dimmed(ViewMaker):
    """Two views of random brightness, and a small one."""

    n_views = 2
    random = True

    def __init__(self, *, least: float = 0.2):
        self.least = least

    def make(self, images):
        n = len(images)
        factors = self.least + (1 - self.least) * torch.rand(n, 2, 1, 1, 1)
        small = images[:, None, :, ::2, ::2] * torch.rand(n, 1, 1, 1, 1)
        return Views(images[:, None] * factors, torch.zeros(n, 2, dtype=torch.int64), small)


class NoMaker:
    """It has the methods but not the interface."""

    n_views = n_kinds = 2
    random = False
    make, shown, numbers = Mirrors.make, Mirrors.shown, Mirrors.numbers


class Positional(Mirrors):
    """A positional option."""

    def __init__(self, first: bool = False):
        super().__init__(first=first)


class Turned(Mirrors):
    """An option that is stored as another value."""

    def __init__(self, *, first: bool = False):
        super().__init__(first=not first)


class Silent(Mirrors):
    pass


class Numberless(Mirrors):
    """A number of kinds in words."""

    n_kinds = "two"


class Bright(Mirrors):
    """Values above 1."""

    def shown(self, images):
        return 1.5 * super().shown(images)


class Miscounted(Mirrors):
    """Numbers from 1."""

    def numbers(self, n):
        return 1 + super().numbers(n)


class Secretly(Mirrors):
    """Random without saying so."""

    def shown(self, images):
        return super().shown(images) * torch.rand(len(images), 1, 1, 1, 1)


class Ageing(Mirrors):
    """Darker from call to call."""

    def __init__(self, *, first: bool = False):
        super().__init__(first=first)
        self.calls = 0

    def shown(self, images):
        self.calls += 1
        return super().shown(images) / self.calls


class Alike(Dimmed):
    """One draw for all images."""

    def make(self, images):
        factor = torch.rand(())
        return Views(
            images[:, None].expand(-1, 2, -1, -1, -1) * factor,
            torch.zeros(len(images), 2, dtype=torch.int64),
        )


class Blended(Mirrors):
    """Mixes in the mean of all images."""

    def shown(self, images):
        return (super().shown(images) + images.mean(dim=0)) / 2


class InPlace(Mirrors):
    """Halves the images it is given."""

    def shown(self, images):
        images /= 2
        return super().shown(images)


class Hashed(Mirrors):
    """The views depend on the hashes of the process."""

    def make(self, images):
        return super().make(images / (1 + hashed()))


BROKEN = {
    "check_construction": NoMaker,
    "check_options_typed": Positional,
    "check_options_stored": Turned,
    "check_summary": Silent,
    **misdeclared(Mirrors),
    "check_declarations": Numberless,
    "check_views": Bright,
    "check_applied": Miscounted,
    "check_random": Secretly,
    "check_repeatable": Ageing,
    "check_drawn_per_image": Alike,
    "check_images_independent": Blended,
    "check_inputs_unchanged": InPlace,
    "check_fresh_process": Hashed,
}


@parametrize_with_checks([Mirrors, Dimmed])
def test_a_sound_maker_passes(make, check):
    check(make)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", BROKEN)
def test_only_its_check_rejects(name, failing):
    assert failing(BROKEN[name], "view") == {name}


class Apart(Mirrors):
    """It says that one transformation makes both views."""

    together = True


def test_views_made_together_have_one_number(failing):
    assert failing(Apart, "view") == {"check_applied"}


def test_every_check_has_its_broken_maker():
    assert list(BROKEN) == [check.__name__ for check in checks_for("view")]
