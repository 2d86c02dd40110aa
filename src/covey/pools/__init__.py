"""Where pieces of work are computed: in processes of this machine, or on a Ray cluster."""

from covey.pools.pool import Pool, in_order, open_pool, results

__all__ = ["Pool", "in_order", "open_pool", "results"]
