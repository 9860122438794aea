from __future__ import annotations

import pytest

from fsf_vlm import Client
from fsframework.interfaces import OptionError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "localhost:8000"}, "url must be the address of an endpoint"),
        ({"url": "http://me:secret@localhost/v1"}, "url must contain neither a password"),
        ({"model": " "}, "model must be the name"),
        ({"key_from": "sk-123"}, "key_from must be the name of the environment variable"),
        ({"concurrent": 0}, "concurrent must be at least 1, got 0"),
        ({"attempts": 0}, "attempts must be at least 1, got 0"),
        ({"timeout": 0.0}, "timeout must be above 0, got 0.0"),
    ],
)
def test_options_out_of_range(options: dict[str, object], message: str) -> None:
    given = {"url": "http://localhost:8000/v1", "model": "tiny", "store": None, **options}
    with pytest.raises(OptionError, match=message):
        Client(**given)  # type: ignore[arg-type]
