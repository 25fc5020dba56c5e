"""Seeds of faults one by one, so that a change of the engine is told by a quick test; test_simulator.py runs many."""

import pytest
from tests.faults.simulator import Simulation

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.parametrize("seed", range(30_000, 30_030))
def test_one_mix_of_faults_breaks_no_invariant(seed: int) -> None:
    simulation = Simulation(seed)
    simulation.run()
    assert simulation.recoveries >= 1
