"""The tasks of FedDR and asyncFedDR: Tran-Dinh et al., NeurIPS 2021, arXiv:2103.03452, with the scripts' settings.

20 local epochs in batches of 10, 200 rounds; FedPD always takes everyone. Clients are weighted by examples. The
synthetic sets are FedProx's; "-authors" has the sizes of the authors' clients.

Departures: in the authors' code FedAvg and FedProx silently lose or slow 10% of each cohort; not here. Its curves of
FedDR and FedPD are those of each client's own model on its own data: `by_own_model` measures that, `evaluate` the
server's model. FedPD starts each solve at the server's model; their code goes on from the user's own, which is
`FedPD(start="own")` and what the reproductions of figures 2 and 3 run. There are no scripts of the experiments with
everyone; the settings are the same here. What is swept in the composite ("l1") experiments is under `tuned_over`.
asyncFedDR is FedDR with `engine = "events"`; how its users divide MNIST and scale pixels is not known, so iid and
standardised.
"""

from fedloom.algorithms import FedAvg, FedDR, FedPD, FedProx
from fedloom.cohorts import everyone, uniform
from fedloom.data import inputs, splits
from fedloom.data.federated_data import FederatedData, federated, natural
from fedloom.data.files import locate
from fedloom.data.sources import leaf, mnist
from fedloom.models import MODELS
from fedloom.regularizers import l1
from fedloom.solvers import SGD
from fedloom.tasks.fedprox import LEVELS, SIZES, lowercase, synthetic_data, synthetic_words
from fedloom.tasks.task import Setting, Task

PAPER = "FedDR, arXiv:2103.03452"

# Of the scripts: FedProx's mu, FedPD's eta, FedDR's eta. FedDR's alpha is 1.95 everywhere.
SCRIPTS = {
    "iid": (0.1, 10.0, 100.0),
    "0-0": (0.1, 10.0, 100.0),
    "0.5-0.5": (1.0, 1.0, 500.0),
    "1-1": (1.0, 10.0, 1000.0),
    "femnist": (0.1, 1.0, 1000.0),
}
ALPHA = 1.95
LAMBDA = 0.01  # of the l1 norm in the composite experiments
EPOCHS = (5.0, 10.0, 15.0, 20.0, 30.0)
SWEEP = {"solver.lr": (0.0025, 0.005, 0.0075, 0.01, 0.025), "solver.epochs": EPOCHS}  # with the l1 norm


def _settings(row: str, lr: float, clients: int, composite: int | None) -> dict[str, dict[str, Setting]]:
    mu, fedpd_eta, eta = SCRIPTS[row]
    solver, rounds = SGD(lr, batch_size=10, epochs=20), 200
    tables = {}
    for variant, cohort in ((f"{clients} clients", uniform(clients)), ("everyone", everyone())):
        tables[variant] = {
            "fedavg": Setting(FedAvg(), solver, cohort, rounds),
            "fedprox": Setting(FedProx(mu), solver, cohort, rounds),
            "fedpd": Setting(FedPD(fedpd_eta), solver, everyone(), rounds),
            "feddr": Setting(FedDR(eta, ALPHA), solver, cohort, rounds),
        }
    if composite is not None:
        tables["l1"] = {"feddr": Setting(FedDR(eta, ALPHA, l1(LAMBDA)), solver, uniform(clients), composite)}
    return tables


def _asynchronous(rounds: int) -> dict[str, dict[str, Setting]]:
    """The README's settings of asyncFedDR; its experiments end by the clock, so the number of rounds is ours."""
    solver = SGD(0.01, batch_size=32, epochs=5)
    return {
        "everyone": {
            "feddr": Setting(FedDR(50.0, 1.0), solver, everyone(), rounds),
            "fedavg": Setting(FedAvg(), solver, everyone(), rounds),
        }
    }


def _mnist(seed: int) -> FederatedData:
    data = mnist.mnist()
    return federated(data, splits.iid(len(data.y), 20, seed))


TASKS = (
    *(
        Task(
            f"feddr-synthetic-{kind}{suffix}",
            synthetic_data(kind, sizes),
            MODELS["feddr-synthetic"](),
            paper=PAPER,
            settings=_settings(kind, 0.01, 10, 10 if kind == "0-0" else None),
            tuned_over=SWEEP if kind == "0-0" else {},
            about=f"{synthetic_words(kind)}, 30 clients {words}: a hidden layer of 32, so not convex.",
        )
        for suffix, sizes, words in SIZES
        for kind in LEVELS
    ),
    Task(
        "feddr-femnist",
        lowercase,
        MODELS["feddr-femnist"](),
        settings=_settings("femnist", 0.003, 50, 200),
        tuned_over={"solver.lr": (0.001, 0.003, 0.005, 0.008, 0.01), "solver.epochs": EPOCHS},
        about="The letters a to j of EMNIST over 200 clients: a hidden layer of 128.",
        needs=("emnist",),
        prepare=inputs.unit,
        paper=PAPER,
    ),
    Task(
        "asyncfeddr-mnist",
        _mnist,
        MODELS["asyncfeddr-mnist"](),
        prepare=inputs.standardised(*inputs.MNIST),
        paper=PAPER,
        settings=_asynchronous(100),
        about="MNIST over 20 clients, iid: a hidden layer of 128.",
        needs=("mnist",),
    ),
    Task(
        "asyncfeddr-femnist",
        lambda seed: natural(leaf.leaf(locate("femnist"), shape=(28, 28), classes=62)),
        MODELS["asyncfeddr-femnist"](),
        settings=_asynchronous(100),
        about="FEMNIST by writer as LEAF writes it, 62 characters: a hidden layer of 128.",
        needs=("femnist",),
        prepare=inputs.unit,
        paper=PAPER,
    ),
)
