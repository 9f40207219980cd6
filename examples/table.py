"""A federation on a table of numbers: hospitals that see different tumours.

python examples/table.py
"""

import tempfile

from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import fedadb


def my_data() -> fedadb.Data:
    """569 tumours, each described by 30 measurements; benign or malignant."""
    table = load_breast_cancer()
    x_train, x_test, y_train, y_test = train_test_split(
        table.data, table.target, test_size=0.25, stratify=table.target, random_state=0
    )
    scaler = StandardScaler().fit(x_train)
    return fedadb.Data(
        scaler.transform(x_train),
        y_train,
        scaler.transform(x_test),
        y_test,
        classes=list(table.target_names),
        name="tumours",
    )


def main() -> float:
    data, best = my_data(), {}
    for algorithm in (fedadb.FedAvg(), fedadb.FedADB()):
        experiment = fedadb.Experiment(
            dataset=data,
            model=fedadb.MLP(hidden=(32,)),
            rounds=20,
            # Six hospitals, most of which see hardly any tumour of one kind.
            federation=fedadb.Federation(6, 0.5, fedadb.Dirichlet(alpha=0.1)),
            local={"epochs": 2, "batch_size": 16, "lr": 0.02},
            algorithm=algorithm,
        )
        with tempfile.TemporaryDirectory() as directory:
            accuracy = fedadb.run(experiment, out=directory).accuracy
        name = type(algorithm).__name__
        best[name] = max(accuracy)
        print(f"{name:6}  last round {accuracy[-1]:.3f}  best round {best[name]:.3f}")
    return min(best.values())


if __name__ == "__main__":
    main()
