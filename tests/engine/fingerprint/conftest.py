"""Fingerprints to compare."""

import pytest
from tests.support.fingerprints import Fingerprints


@pytest.fixture
def fingerprints() -> Fingerprints:
    return Fingerprints()
