"""A Hugging Face folder: a dataset that was saved with `save_to_disk`, with its own training and test part.

    python examples/huggingface_folder.py      # needs pip install 'fedloom[huggingface,table]'

Reviews of five shops as embeddings, such as a language model gives them: is the customer content?
"""

import pathlib
import tempfile

import datasets
import numpy as np

import fedloom as fl


def reviews(n: int, seed: int) -> datasets.Dataset:
    """An embedding of 16 numbers, the shop, and an opinion by name."""
    rng, rule = np.random.default_rng(seed), np.random.default_rng(0).normal(size=16)
    shop, embedding = rng.integers(0, 5, n), rng.normal(size=(n, 16))
    content = embedding @ rule + shop - 2 > 0
    columns = {
        "embedding": embedding.tolist(),
        "shop": [f"shop {k}" for k in shop],
        "opinion": content.astype(int).tolist(),
    }
    features = datasets.Features(
        embedding=datasets.Sequence(datasets.Value("float32"), length=16),
        shop=datasets.Value("string"),
        opinion=datasets.ClassLabel(names=["angry", "content"]),
    )
    return datasets.Dataset.from_dict(columns, features=features)


def main(rounds: int = 30, seeds: int = 3) -> None:
    """Save a folder, and compare methods on it."""
    folder = pathlib.Path(tempfile.mkdtemp()) / "reviews"
    datasets.disable_progress_bars()
    datasets.DatasetDict(train=reviews(500, 1), test=reviews(200, 2)).save_to_disk(folder)

    task = fl.tables.from_file(folder, label="opinion", client="shop", model="linear")
    print(task.about)
    study = fl.compare(task, ["fedavg", "scaffold", "fedadam"], rounds=rounds, seeds=range(seeds))
    print(fl.report.text(study))


if __name__ == "__main__":
    main()
