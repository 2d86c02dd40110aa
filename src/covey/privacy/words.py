"""Words for what a guarantee protects."""

from __future__ import annotations

from covey.privacy.accounting import Adjacency, Unit

#: What neighbouring data sets differ in, in a few words.
NEIGHBOURS: dict[tuple[Unit, Adjacency], str] = {
    ("sample", "replace_one"): "one sample replaced",
    ("sample", "add_remove"): "one sample added or removed",
    ("device", "replace_one"): "all data of one device replaced",
    ("device", "add_remove"): "one device with all its data added or removed",
}
#: The same as the beginning of a sentence about changes.
CHANGES: dict[tuple[Unit, Adjacency], str] = {
    ("sample", "replace_one"): "replacing one of its samples",
    ("sample", "add_remove"): "adding or removing one of its samples",
    ("device", "replace_one"): "replacing all its data",
    ("device", "add_remove"): "adding or removing the user with all its data",
}
#: What is protected, as a sentence.
PROTECTED: dict[tuple[Unit, Adjacency], str] = {
    ("sample", "replace_one"): "What is protected is one sample of one user, replaced by any other.",
    ("sample", "add_remove"): "What is protected is one sample of one user, added or removed.",
    ("device", "replace_one"): "What is protected is all data of one user, replaced by any other.",
    ("device", "add_remove"): "What is protected is all data of one user, added or removed with it.",
}
