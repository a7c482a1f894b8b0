import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.analysis.middle import t_cdf, t_quantile


@pytest.mark.parametrize(
    ("probability", "degrees", "expected"),
    [
        (0.975, 1, 12.7062),
        (0.975, 2, 4.3027),
        (0.975, 4, 2.7764),
        (0.975, 9, 2.2622),
        (0.975, 18, 2.1009),
        (0.95, 7, 1.8946),
        (0.995, 3, 5.8409),
        (0.9995, 10, 4.5869),
        (0.975, 1_000_000, 1.95997),
    ],
)
def test_quantiles_are_those_of_printed_tables(probability, degrees, expected):
    assert t_quantile(probability, degrees) == pytest.approx(expected, abs=6e-5)


@given(st.floats(-50, 50), st.floats(0.5, 500))
def test_distribution_is_symmetric(t, degrees):
    assert t_cdf(t, degrees) + t_cdf(-t, degrees) == pytest.approx(1.0)


@pytest.mark.parametrize(("probability", "degrees"), [(0.0, 3), (1.0, 3), (0.9, 0), (0.9, -1)])
def test_what_has_no_quantile_is_refused(probability, degrees):
    with pytest.raises(ValueError, match="must be"):
        t_quantile(probability, degrees)
