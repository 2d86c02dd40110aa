from __future__ import annotations

import os

# Before torch is imported anywhere: one compute thread, as the workers have.
os.environ.setdefault("OMP_NUM_THREADS", "1")
