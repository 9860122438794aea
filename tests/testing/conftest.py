import pytest

from fsframework.testing import check_component


@pytest.fixture
def failing():
    """Return a function that names the checks a component fails."""

    def names(make, kind):
        return {result.name for result in check_component(make, kind) if not result.passed}

    return names
