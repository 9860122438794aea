"""Every case of the reference heads is compared by the package of its method, or says why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden_heads import GOLDEN, golden_heads, read_case

COMPARED = {
    "CDKT": "fsf_methods",
    "CPEA": "fsf_methods",
    "DETA": "fsf_methods",
    "DeepBDC": "fsf_methods",
    "DistributionCalibration": "fsf_methods",
    "FRN": "fsf_methods",
    "FWT": "fsf_methods",
    "GNN": "fsf_methods",
    "GNNoriginal": "fsf_methods",
    "HTS": "fsf_self_supervised",
    "IFSL": "fsf_methods",
    "LPFTFB": "fsf_methods",
    "OpTA": "fsf_self_supervised",
    "PsCo": "fsf_self_supervised",
    "SIB": "fsf_methods",
    "SLA": "fsf_self_supervised",
    "SSFSL": "fsf_self_supervised",
    "TPN": "fsf_methods",
    "TSA": "fsf_methods",
    "UniSiam": "fsf_self_supervised",
}
"""The package whose tests compare the cases of a method."""


@pytest.mark.shared_data
@pytest.mark.skipif(not GOLDEN.is_dir(), reason=f"the reference material is not at {GOLDEN}")
@golden_heads()
def test_golden_heads_are_compared(path: Path) -> None:
    case = read_case(path)
    package = Path(__file__).resolve().parents[1] / "plugins" / COMPARED[case.method]
    tests = "".join(file.read_text() for file in package.glob("tests/**/*.py"))
    assert f'"{case.method}"' in tests, f"no test of {package.name} reads {case.name}"
