"""Can a model trained on all hospitals' data in one place beat the more frequent class in each? Five-fold, three times.

FEDLOOM_DATA=... python benchmarks/heart_pooled.py
"""

from typing import Any

import numpy as np
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from fedloom.data.sources.heart import heart_disease

MODELS: dict[str, Any] = {
    "logistic regression": LogisticRegression(max_iter=5000),
    "logistic regression, C=0.1": LogisticRegression(C=0.1, max_iter=5000),
    "boosting": GradientBoostingClassifier(n_estimators=60, max_depth=3, random_state=0),
    "random forest": RandomForestClassifier(300, min_samples_leaf=3, random_state=0),
}


def main() -> None:
    data = heart_disease()
    x, y, hospital = data.x, data.y, np.asarray(data.keys)
    names = np.unique(hospital)
    groups = [f"{h} {label}" for h, label in zip(hospital, y, strict=True)]

    def line(title: str, values: list[float]) -> None:
        print(f"{title:<28}" + "".join(f"{v:>14.1%}" for v in values), flush=True)

    print(f"{'held-out accuracy':<28}" + "".join(f"{n:>14}" for n in names))
    line("the more frequent class", [max(np.mean(y[hospital == n]), 1 - np.mean(y[hospital == n])) for n in names])
    for title, model in MODELS.items():
        right = np.zeros((3, len(y)))
        for seed in range(3):
            for train, test in StratifiedKFold(5, shuffle=True, random_state=seed).split(x, groups):
                right[seed, test] = model.fit(x[train], y[train]).predict(x[test]) == y[test]
        line(title, [float(right[:, hospital == n].mean()) for n in names])


if __name__ == "__main__":
    main()
