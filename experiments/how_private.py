"""How well, how private? Test accuracy against epsilon, in both units, seen singly and in sums.

    python experiments/how_private.py --tune --data digits
    python experiments/how_private.py --judged --data digits
    python experiments/how_private.py

Every run is one cell of the study's store; finished cells are not computed again, so that the script can be stopped and
started at will. Settings are chosen on seeds from 1000 (`--tune`, groups given) and shown on seeds from 9000
(`--judged`). Without either, docs/how_private.md and its picture are made from what is there.
"""

from __future__ import annotations

from pathlib import Path

from how_private_page import draw, page, read
from how_private_runs import DATA, best, judged, tuning
from study import compute, options_of

from covey.figures.cells import cells_in
from covey.files import write_atomically
from covey.report.pictures import png


def main() -> None:
    """Compute the missing cells, or make the page."""
    parser = options_of(__doc__, Path("results/how_private"))
    parser.add_argument("--data", nargs="+", choices=DATA, default=[*DATA])
    parser.add_argument("--tune", action="store_true", help="try all settings on development seeds")
    parser.add_argument("--seeds", type=int, default=1, help="development seeds")
    parser.add_argument("--judged", action="store_true", help="run the chosen settings on judged seeds")
    parser.add_argument("--page", type=Path, default=Path("docs/how_private.md"))
    parser.add_argument("--picture", type=Path, default=Path("docs/images/how_private.png"))
    options = parser.parse_args()
    for data in options.data:
        if options.tune:
            compute(tuning(data, options.seeds), options.out, options)
        if options.judged:
            chosen = best(cells_in(options.out, any_version=True).records("how_private"))
            compute(judged(data, chosen), options.out, options)
    if options.tune or options.judged:
        return
    found = read(options.out)
    write_atomically(options.picture, png(draw(found)))
    write_atomically(options.page, page(found).encode())


if __name__ == "__main__":
    main()
