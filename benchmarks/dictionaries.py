"""Train the dictionaries by which a store compresses what programs leave behind.

    python benchmarks/dictionaries.py STORE [STORE ...] [--size 65536]

Takes the runs of stores that campaigns of several phones filled, and writes a dictionary for each
program that has enough of them into ``orchestrator/store/dictionaries``. Stores that exist name the
dictionary that a run was compressed by: a file there is never changed or removed, a new one gets
another name. Prints what the documents and the outputs take that weren't trained on.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

from orchestrator.documents import dump_document
from orchestrator.records.case import Case
from orchestrator.records.run import RunRecord
from orchestrator.store import runs, schema
from orchestrator.store.opening import open_store
from orchestrator.store.schema import zstd

FOLDER = Path(schema.__file__).parent / "dictionaries"
#: Runs of a program below which nothing is learned.
LEAST = 30
FEW = 100


def samples_of(run: RunRecord) -> list[bytes]:
    """Return what a store compresses of a run."""
    output = b"".join(item.data for item in run.attachments if not schema.is_large(item))
    return [
        dump_document(run, without=runs.BESIDE).encode(),
        output,
        *(item.data for item in run.attachments if not schema.is_large(item)),
    ]


def main() -> None:
    """Train, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stores", nargs="+", type=Path)
    parser.add_argument(
        "--size", type=int, default=65536, help="bytes of each dictionary (default 65536)"
    )
    options = parser.parse_args()
    found: dict[str, list[RunRecord]] = defaultdict(list)
    for path in options.stores:
        for run in open_store(path).runs(with_attachments=True):
            found[run.case.tool.value].append(run)
    train(found, options.size)


def train(found: dict[str, list[RunRecord]], size: int) -> None:
    """Write a dictionary for each program, and print what it is worth."""
    FOLDER.mkdir(exist_ok=True)
    told = {}
    for tool, known in sorted(found.items()):
        if len(known) < LEAST:
            continue
        name = f"{tool}.{1 + sum(1 for _ in FOLDER.glob(f'{tool}.*.zdict'))}.zdict"
        # Of few runs a large one learns too little.
        most = size if len(known) > FEW else size // 2
        # Every fourth run is left for the proof.
        learned = [
            sample for place, run in enumerate(known) if place % 4 for sample in samples_of(run)
        ]
        learned += [
            dump_document(case).encode() for case in dict.fromkeys(run.case for run in known)
        ]
        made = zstd.train_dict([item for item in learned if item], most).dict_content
        (FOLDER / name).write_bytes(made)
        proof = [run for place, run in enumerate(known) if place % 4 == 0]
        schema._dictionaries.cache_clear()
        texts = [dump_document(run, without=runs.BESIDE).encode() for run in proof]
        cases: list[Case] = [run.case for run in proof]
        told[tool] = {
            "runs": len(known),
            "document_bytes": round(sum(map(len, texts)) / len(proof)),
            "packed_bytes": round(sum(len(schema.pack(text, tool)) for text in texts) / len(proof)),
            "output_bytes": round(
                sum(sum(len(item.data) for item in run.attachments) for run in proof) / len(proof)
            ),
            "packed_output_bytes": round(
                sum(len(schema.pack_output(run.attachments, tool)) for run in proof) / len(proof)
            ),
            "packed_case_bytes": round(
                sum(len(schema.pack(dump_document(case).encode(), tool)) for case in cases)
                / len(cases)
            ),
        }
    print(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
