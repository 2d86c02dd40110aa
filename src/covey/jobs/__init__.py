"""Jobs: worker pools (local processes, a Ray cluster) and the cache of results (`Store`)."""

from covey.jobs.identity import digest, identity, scenario_digest
from covey.jobs.pool import Pool, in_order, open_pool, results
from covey.jobs.store import Job, Record, Store, Values, key_of, made_with, versions_text

__all__ = [
    "Job",
    "Pool",
    "Record",
    "Store",
    "Values",
    "digest",
    "identity",
    "in_order",
    "key_of",
    "made_with",
    "open_pool",
    "results",
    "scenario_digest",
    "versions_text",
]
