import pytest

pytest.register_assert_rewrite("tests.evidence.text")
